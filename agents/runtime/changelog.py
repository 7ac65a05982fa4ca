"""The changelog of one partition task: what each commit did to its state, in Kafka, as the authority on state and position.

Each commit is one packed record (topics/changelog.py), in chunks below the record limit. A rolling refresh shortens a log that
has grown long. Every commit then also carries unchanged state, as many bytes as it carries of changes, from a cursor that walks
through the key space. At the end of a round, all that was written before the round began is superseded and may be deleted
(``purge_before``). So the log is at most a few times the size of the state, without ever writing a whole snapshot. A log that
begins later than ``purge_before`` has lost records and is refused.
"""

import contextlib
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import msgspec
from confluent_kafka import KafkaException

from susurrus.agents.kafka.clients import Clients
from susurrus.agents.kafka.follow import read_to_end
from susurrus.agents.kafka.offset import Offset
from susurrus.agents.kafka.requests import deliver
from susurrus.agents.kafka.transactional import TransactionalProducer
from susurrus.agents.runtime.commit import Commit
from susurrus.agents.runtime.store import FIRST_STATE_KEY, Store
from susurrus.mechanisms.errors import Refusal
from susurrus.topics import changelog as codec
from susurrus.topics.wire.packing import MalformedRecord

_LAST_STATE_KEY = b"\xff"
_REFRESH_BYTES = 64 << 10
_RECORD_BYTES = 500
"""What a commit without state costs, roughly."""
_LONG_LOG_BYTES = 64 << 20
"""A log of fewer bytes is read in a second or two: not worth a refresh."""
RECOVERING = 16
"""How many tasks of a worker read their changelogs at a time. Each has a client of its own for that, with threads for every broker;
more would not be faster, because a few cores replay what they read."""
_TURN_SECONDS = 1.0
_recovering = threading.BoundedSemaphore(RECOVERING)
_NONE = -1
_HERE = -2


class Refresh(msgspec.Struct, array_like=True):
    """Where the rolling refresh is.

    cursor: the next key. round_start: changelog offset at which this round began; -1: none is under way. purge_before: records
    below it are superseded. logged: bytes since the last round. In a record, -2 stands for the offset of that record itself.
    """

    cursor: bytes = b""
    round_start: int = -1
    purge_before: int = -1
    logged: int = 0

    def located(self, offset: int) -> "Refresh":
        """The same once the offset of the record's first chunk is known."""
        return msgspec.structs.replace(
            self,
            round_start=offset if self.round_start == _HERE else self.round_start,
            purge_before=offset if self.purge_before == _HERE else self.purge_before,
        )


class CommitFacts(msgspec.Struct):
    """The meta part of a changelog record."""

    epoch: str
    meta: dict[str, Any]
    drops: list[tuple[bytes, bytes]]
    refresh: Refresh


class State(msgspec.Struct):
    """The store's meta record: what the last commit left, and how far the changelog is applied."""

    epoch: str
    changelog_id: str
    changelog_next: int
    position: Offset
    topic_id: str
    meta: dict[str, Any]
    refresh: Refresh


# Made here, once: threads that each let msgspec compile a record's type on first use crash the process (msgspec 0.22).
_decode_facts = msgspec.msgpack.Decoder(CommitFacts).decode
_decode_state = msgspec.msgpack.Decoder(State).decode


@dataclass(slots=True)
class PreparedCommit:
    """A commit as `prepare` has computed it, and the offsets of its chunks once `produce` has written them."""

    commit: Commit
    chunks: list[bytes]
    state: State
    first_offset: int = -1
    last_offset: int = -1


class Changelog:
    """The changelog partition of one task. Used by the task's thread only."""

    def __init__(self, clients: Clients, topic: str, partition: int, *, max_bytes: int = 900_000) -> None:
        self.topic = topic
        self.partition = partition
        self.purge_before = -1
        """Changelog records below this offset are superseded."""
        self._place = f"topic={topic} partition={partition}"
        self._begins = -1
        self._clients = clients
        self._max_bytes = max_bytes
        self._id = ""

    # ---- recovery ----------------------------------------------------------------------------------------------------

    def meta(self, store: Store) -> State | None:
        """The last commit that the store holds."""
        raw = store.meta()
        return None if raw is None else _decode_state(raw)

    def recover(
        self,
        store: Store,
        *,
        epoch: str,
        mark_alive: Callable[[], None],
        begins: int = 0,
        way_out: str = "give the pipeline a new name to start over",
    ) -> State | None:
        """Replay what the store lacks, up to the present end of the log. Returns the state, None if there was never a commit.

        begins: the epoch's first offset; records below it are of an earlier epoch and may be deleted. way_out: what an operator
        can do without a copy of the log. The task's producer is initialised before this is called, so no older owner can append
        behind that end. Raises Refusal where the log cannot be the one that this store, or this epoch, was built from.
        """
        self._id = self._clients.topic_id(self.topic)
        self._begins = begins or -1
        way_out = f"restore the changelog as it was at the last commit, or {way_out}"
        state = self.meta(store)
        low, end = self._clients.watermarks(self.topic, self.partition)
        if begins > end:
            raise Refusal(
                f"{self._place} ends at offset={end}, but the epoch begins at offset={begins}, so the changelog was "
                "truncated",
                way_out,
            )
        start = max(low, begins)
        if state is not None and (
            (state.epoch, state.changelog_id) != (epoch, self._id) or state.changelog_next < start
        ):
            store.wipe()
            state = None
        if state is not None and state.changelog_next > end:
            raise Refusal(
                f"{self._place} ends at offset={end}, but the local state has seen offset={state.changelog_next}, "
                "so the changelog was truncated",
                way_out,
            )
        assembler = codec.Assembler()
        from_start, first = state is None, start
        position = state.changelog_next if state is not None else start
        with contextlib.closing(self._read(position, end, mark_alive)) as messages:
            for message in messages:
                offset = message.offset()
                if not assembler.pending:
                    first = offset
                try:
                    record = assembler.feed(message.value() or b"")
                except MalformedRecord as error:
                    raise Refusal(f"{self._place} offset={offset} is no commit ({error})", way_out) from error
                if record is not None:
                    state = self._replay(store, record, first, offset + 1, epoch, way_out)
        if assembler.pending:
            raise Refusal(f"{self._place} ends with a commit that lacks chunks", way_out)
        self.purge_before = max(state.refresh.purge_before if state is not None else -1, self._begins)
        needed = max(0, self.purge_before)
        if from_start and state is not None and low > needed:
            raise Refusal(
                f"{self._place} starts at offset={low}, but the state begins at offset={needed}, so part of the "
                "changelog was deleted",
                way_out,
            )
        return state

    def _read(self, position: int, end: int, mark_alive: Callable[[], None]) -> Generator[Any]:
        """The messages of the log up to its end, when it is this task's turn; closed, it is the next one's. Waiting is a sign of
        life."""
        if position >= end:
            return
        while not _recovering.acquire(timeout=_TURN_SECONDS):
            mark_alive()
        try:
            with contextlib.closing(self._clients.reader("recovery")) as consumer:
                place = (self.topic, self.partition)
                yield from read_to_end(consumer, place, position, until=end, mark_alive=mark_alive)
        finally:
            _recovering.release()

    def _replay(
        self, store: Store, record: codec.ChangelogRecord, first: int, following: int, epoch: str, way_out: str
    ) -> State:
        facts = _decode_facts(record.meta)
        if facts.epoch != epoch:
            raise Refusal(f"{self._place} holds state of epoch={facts.epoch}, the ledger says epoch={epoch}", way_out)
        state = State(
            epoch=epoch,
            changelog_id=self._id,
            changelog_next=following,
            position=Offset(record.next_position),
            topic_id=record.topic_id,
            meta=facts.meta,
            refresh=facts.refresh.located(first),
        )
        store.write(record.puts, record.deletes, facts.drops, meta=msgspec.msgpack.encode(state))
        return state

    # ---- commits -----------------------------------------------------------------------------------------------------

    def prepare(self, store: Store, commit: Commit, topic_id: str, epoch: str) -> PreparedCommit:
        """Compute everything of a commit that can be computed before the transaction begins."""
        previous = self.meta(store)
        before = previous.refresh if previous is not None else Refresh()
        size = sum(len(key) + len(value) for key, value in commit.puts)
        refreshed: list[tuple[bytes, bytes]] = []
        logged = before.logged + size + _RECORD_BYTES + len(msgspec.msgpack.encode(commit.meta))
        refresh = msgspec.structs.replace(before, logged=logged)
        running = before.round_start != _NONE
        if running or before.logged > _LONG_LOG_BYTES:
            round_start = before.round_start if running else _HERE
            refreshed, cursor = self._refresh(store, commit, before.cursor if running else b"", size)
            if cursor:
                refresh.cursor, refresh.round_start = cursor, round_start
                refresh.logged += size
            else:
                refresh = Refresh(purge_before=round_start)
        facts = CommitFacts(epoch=epoch, meta=commit.meta, drops=commit.drops, refresh=refresh)
        record = codec.ChangelogRecord(
            next_position=commit.position,
            topic_id=topic_id,
            meta=msgspec.msgpack.encode(facts),
            puts=refreshed + commit.puts,
            deletes=commit.deletes,
        )
        state = State(
            epoch=epoch,
            changelog_id=self._id,
            changelog_next=-1,
            position=commit.position,
            topic_id=topic_id,
            meta=commit.meta,
            refresh=refresh,
        )
        return PreparedCommit(commit, codec.encode(record, self._max_bytes), state)

    def _refresh(
        self, store: Store, commit: Commit, cursor: bytes, size: int
    ) -> tuple[list[tuple[bytes, bytes]], bytes]:
        """Unchanged items from the cursor on, and the new cursor, which is empty at the end of the key space."""
        changed = {key for key, _ in commit.puts}
        changed.update(commit.deletes)
        drops = commit.drops
        budget = max(size, _REFRESH_BYTES)
        items: list[tuple[bytes, bytes]] = []
        for item in store.scan(cursor or FIRST_STATE_KEY, _LAST_STATE_KEY):
            key = item[0]
            if budget <= 0:
                return items, key
            if key in changed or (drops and any(start <= key < end for start, end in drops)):
                continue
            items.append(item)
            budget -= len(key) + len(item[1])
        return items, b""

    def produce(self, producer: TransactionalProducer, step: PreparedCommit) -> None:
        """Queue the record's chunks and wait until all of the transaction's records are on the brokers."""
        failures: list[Any] = []

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                failures.append(error)
                return
            offset = message.offset()
            step.first_offset = offset if step.first_offset < 0 else min(step.first_offset, offset)
            step.last_offset = max(step.last_offset, offset)

        for chunk in step.chunks:
            while True:
                try:
                    producer.produce(self.topic, chunk, partition=self.partition, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.1)
        deliver(producer, 60.0)
        if failures:
            raise KafkaException(failures[0])

    def apply(self, store: Store, step: PreparedCommit) -> None:
        """Write a committed step to the store, in one batch."""
        state, commit = step.state, step.commit
        state.changelog_next = step.last_offset + 1
        state.refresh = state.refresh.located(step.first_offset)
        self.purge_before = max(state.refresh.purge_before, self._begins)
        store.write(commit.puts, commit.deletes, commit.drops, meta=msgspec.msgpack.encode(state))
