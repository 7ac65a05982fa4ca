"""A chain of digests over the exact values of a raw partition: what was published is never published again from other values.

    values ──blocks of 32──▶ chain ──every commit that writes rows──▶ ledger: published/<partition>

Streams have no triggers, and a commit ends where a fetch happened to end. So the chain can be read off behind any event: it is a
digest over whole blocks of events and the bytes of the open block. The record in the ledger says up to which raw offset everything
is public, and the chain there. A worker that comes from an older state steps its streams through the same records. It publishes
nothing of what lies below that offset, and compares the chain there. A difference before it is a difference there, too, so one
record is enough, and the ledger does not grow.

Not in the chain: dead letters, which are no input of any noise, and offsets and times, which are public.
"""

import logging
from bisect import bisect_left
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from susurrus.agents.kafka.offset import Offset
from susurrus.agents.runtime.chain import chain_key
from susurrus.agents.runtime.commit import Output
from susurrus.agents.runtime.services import Services
from susurrus.agents.runtime.stage import MorePublic
from susurrus.mechanisms.arrays import Int32s, Int64s
from susurrus.mechanisms.errors import Refusal, ReplayMismatch
from susurrus.topics import ledger as codec
from susurrus.topics.records.scanning import Scanned
from susurrus.topics.records.table import RecordTable

log = logging.getLogger(__name__)

BLOCK = 32
"""Events of a block. The open one is part of every commit, and a larger one saves little time (benchmarks/chain.py)."""
_NAME_BYTES = 16
_EVENT_BYTES = _NAME_BYTES + 8
_BLOCK_BYTES = BLOCK * _EVENT_BYTES
_NAMES_IN_MEMORY = 50_000


class Chain:
    """The chain of digests of one raw partition in one epoch. The digest is a function of the key, ``begins`` and the events, not
    of their batches.

    key: 32 bytes, secret. begins: raw offset of the first record that can be part of it.
    """

    def __init__(self, key: bytes, begins: Offset) -> None:
        self.begins = begins
        self._key = key
        self._events = 0
        self._link = self._hash(b"begins", begins.to_bytes(8, "big"))
        self._open = b""
        self._names: dict[bytes, bytes] = {}

    @classmethod
    def restored(cls, key: bytes, state: dict[str, Any]) -> "Chain":
        """The chain that `state` was taken of."""
        chain = cls(key, Offset(state["begins"]))
        chain._events, chain._link, chain._open = state["events"], state["link"], state["open"]
        return chain

    def state(self) -> dict[str, Any]:
        """What a meta record keeps of the chain: begins, events so far, the link 32 bytes, the events of the open block up to 744
        bytes."""
        return {"begins": self.begins, "events": self._events, "link": self._link, "open": self._open}

    def add(self, streams: list[bytes], codes: Int32s, values: Int64s) -> None:
        """Add n events in order. streams: names by code. codes: int32[n]. values: int64[n], in steps of the grid."""
        if not len(codes):
            return
        events = np.empty((len(codes), _EVENT_BYTES), np.uint8)
        events[:, :_NAME_BYTES] = self._digests_of(streams)[codes]
        events[:, _NAME_BYTES:] = np.ascontiguousarray(values, "<i8").view(np.uint8).reshape(-1, 8)
        data, key, link = self._open + events.tobytes(), self._key, self._link
        whole = len(data) - len(data) % _BLOCK_BYTES
        for begin in range(0, whole, _BLOCK_BYTES):
            link = blake2b(link + data[begin : begin + _BLOCK_BYTES], digest_size=32, key=key, person=b"block").digest()
        self._link, self._open = link, data[whole:]
        self._events += len(codes)

    def digest(self) -> str:
        """32 bytes in hex over everything so far."""
        return self._hash(b"head", self._events.to_bytes(8, "big") + self._link + self._open).hex()

    def fingerprint(self, key: bytes | None, value: bytes | None) -> str:
        """16 bytes in hex that tell one public row from another."""
        name = key or b""
        return self._hash(b"row", len(name).to_bytes(8, "big") + name + (value or b""))[:16].hex()

    def _hash(self, person: bytes, data: bytes) -> bytes:
        return blake2b(data, digest_size=32, key=self._key, person=person).digest()

    def _digests_of(self, streams: list[bytes]) -> npt.NDArray[np.uint8]:
        """uint8[streams, 16], a digest of each name: names have any length, and the events of a block have one."""
        known = self._names
        if len(known) > _NAMES_IN_MEMORY:
            known.clear()
        for name in streams:
            if name not in known:
                known[name] = self._hash(b"name", name)[:_NAME_BYTES]
        return np.frombuffer(b"".join([known[name] for name in streams]), np.uint8).reshape(-1, _NAME_BYTES)


class StreamReplay:
    """What a raw partition of streams has published already, and the chain of what it was published from.

    meta: its chain is taken up, or begun at ``position`` where it has none. Raises ReplayMismatch where the ledger's chain is
    another one, and MorePublic where the ledger is older than the public topic.
    """

    def __init__(self, services: Services, partition: int, meta: dict[str, Any], position: Offset) -> None:
        self._services = services
        self._partition = partition
        self._topic = services.topic("private-stream")
        key, state = stream_key(services, partition), meta.get("chain")
        self._chain = Chain.restored(key, state) if state else Chain(key, position)
        public = services.ledger.published(partition)
        self._public = public
        """What the ledger has; None once the chain was compared with it."""
        self._row = self._compared_with_public(public, state)
        """The fingerprint of the last public row."""
        if public is not None:
            self._compare_at(position, public)

    # ---- a start -----------------------------------------------------------------------------------------------------

    def _compare_at(self, position: Offset, public: codec.PublishedPosition) -> None:
        """Compare the chain with the ledger's, as far as that is possible where the state stands."""
        if position < public.position:
            log.info(
                "stream-%d: what the records from offset %d to %d have made public is not published again",
                self._partition,
                position,
                public.position - 1,
            )
            if self._chain.begins != public.begins:
                raise self._mismatch(public)
        elif position == public.position:
            self._compare(public)
        else:  # commits without rows came after it
            self._public = None

    def _compared_with_public(self, public: codec.PublishedPosition | None, state: dict[str, Any] | None) -> str:
        """The fingerprint of the last row that the ledger knows. Raises MorePublic where the topic ends with another one.

        Both are written in one transaction. So they agree, unless the ledger is an older copy, or another owner has published since
        the ledger was read.
        """
        # The embedded broker keeps nothing from an earlier life.
        clients, ledger = self._services.clients, self._services.ledger
        newest = None if clients.embedded else clients.newest(self._topic, self._partition)
        row = "" if newest is None else self._chain.fingerprint(newest.key, newest.value)
        if public is not None:
            known = public.row
        else:  # a state of a version that kept no chain has rows that the ledger never knew
            known = row if state is None else state.get("row", "")
        if not row or row == known:
            return known
        raise MorePublic(
            "more is public than the ledger knows; the ledger is read again",
            evidence=(known, row),
            refusal=Refusal(
                f"topic={self._topic} partition={self._partition} ends with a row that topic={ledger.topic} does not know, so "
                "internal topics are an older copy, and the same noise would be published over other data",
                f"restore them as they were at the last commit, or {ledger.way_out}",
            ),
        )

    # ---- records -----------------------------------------------------------------------------------------------------

    def take(
        self, records: Sequence[Any], good: Int64s, streams: list[bytes], codes: Int32s, values: Int64s, end: Offset
    ) -> int:
        """Add a batch to the chain, and return how many of its records have had their public effect before.

        records: n, all below ``end``, in order. good: int64, the rows of those that are events. streams: names by code. codes,
        values: int32[n], int64[n]. Raises ReplayMismatch where the chain at the ledger's position is another one.
        """
        public = self._public
        if public is None:
            self._chain.add(streams, codes[good], values[good])
            return 0
        known = _below(records, public.position)
        split = int(np.searchsorted(good, known))
        self._chain.add(streams, codes[good[:split]], values[good[:split]])
        if end >= public.position:
            self._compare(public)
        self._chain.add(streams, codes[good[split:]], values[good[split:]])
        return known

    def _compare(self, public: codec.PublishedPosition) -> None:
        """The chain is at the ledger's position."""
        if (self._chain.begins, self._chain.digest()) != (public.begins, public.digest):
            raise self._mismatch(public)
        self._public = None

    def _mismatch(self, public: codec.PublishedPosition) -> ReplayMismatch:
        return ReplayMismatch(
            f"stage=stream partition={self._partition} position={public.position}: what is public up to here was "
            "published from different values, and the same noise must never cover two inputs",
            "restore the raw topic and the internal topics as they were at the last commit, or "
            f"{self._services.ledger.way_out}",
        )

    # ---- commits -----------------------------------------------------------------------------------------------------

    def published(self, position: Offset, rows: Sequence[dict[str, Any]]) -> Output:
        """The ledger's record of a commit that has outputs. rows: its messages for the public topic, as they are written."""
        if rows:
            self._row = self._chain.fingerprint(rows[-1]["key"], rows[-1]["value"])
        record = codec.PublishedPosition(
            partition=self._partition,
            begins=self._chain.begins,
            position=position,
            digest=self._chain.digest(),
            row=self._row,
        )
        return self._services.ledger.output(record)

    def state(self) -> dict[str, Any]:
        """What the meta record of a commit keeps."""
        return {**self._chain.state(), "row": self._row}


def stream_key(services: Services, partition: int) -> bytes:
    """32 bytes that key the chain of a raw partition, in this epoch and under this configuration."""
    key = chain_key(services.secret, bytes.fromhex(services.ledger.epoch))
    place = services.config_digest + partition.to_bytes(8, "big")
    return blake2b(place, key=key, person=b"susurrus-stream", digest_size=32).digest()


def _below(records: Sequence[Any], position: int) -> int:
    """How many records lie below an offset."""
    if isinstance(records, Scanned | RecordTable):
        return int(np.searchsorted(records.offset, position))
    return bisect_left(records, position, key=lambda record: record.offset)
