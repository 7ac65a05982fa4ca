"""The local state of one partition task: RocksDB in raw bytes behind a bounded layer of memory.

It is a cache of the changelog, never an authority: its meta record says up to which changelog offset it is complete, and
whatever is missing is replayed (agents/changelog.py). Commits are written after the Kafka commit, first into memory; when that
has grown, all of it goes to RocksDB in ONE batch with the meta record of the last commit in it, so what is on disk is always the
state after some commit, though not always the last. It is opened by exactly one task thread.
"""

import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rocksdict import BlockBasedOptions, Cache, Options, Rdict, ReadOptions, WriteBatch, WriteOptions

META_KEY = b"\x00meta"
FIRST_STATE_KEY = b"\x01"

_cache: Cache | None = None


def _shared_cache() -> Cache:
    """One block cache for all stores of a worker: memory is bounded by it, not by the number of partitions."""
    global _cache
    if _cache is None:
        _cache = Cache(256 << 20)
    return _cache


def _options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(16 << 20)
    options.set_max_write_buffer_number(2)
    options.set_keep_log_file_num(2)
    options.set_max_open_files(256)
    options.increase_parallelism(2)
    table = BlockBasedOptions()
    table.set_block_cache(_shared_cache())
    table.set_bloom_filter(10, False)
    table.set_cache_index_and_filter_blocks(True)
    options.set_block_based_table_factory(table)
    return options


def _write_options() -> WriteOptions:
    """No write-ahead log: the changelog is one, and after a crash what is missing here is replayed from it."""
    options = WriteOptions()
    options.disable_wal = True
    options.memtable_insert_hint_per_batch = True
    return options


_MEMORY_BYTES = 24 << 20
_ENTRY_BYTES = 150
"""What an entry of a dictionary of byte strings costs beside the bytes."""
_UNKNOWN = object()


class Store:
    """Byte keys to byte values; keys sort bytewise. The first byte names the table (agents/histogram/*)."""

    def __init__(self, directory: Path, *, lock_seconds: float = 10.0, memory_bytes: int = _MEMORY_BYTES) -> None:
        self.directory = directory
        self._memory_bytes = memory_bytes
        self._dirty: dict[bytes, bytes | None] = {}
        self._clean: dict[bytes, bytes | None] = {}
        self._dirty_meta: bytes | None = None
        self._dirty_bytes = 0
        directory.parent.mkdir(parents=True, exist_ok=True)
        deadline = time.monotonic() + lock_seconds
        while True:
            try:
                self._db = Rdict(str(directory), _options())
                return
            except Exception:
                # The task that had the partition before us may still be closing it.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of many keys, None where absent."""
        dirty, clean = self._dirty, self._clean
        if not dirty and not clean:
            return self._db.get(list(keys)) if keys else []
        values: list[Any] = [dirty.get(key, _UNKNOWN) for key in keys]
        if clean:
            values = [
                clean.get(key, _UNKNOWN) if value is _UNKNOWN else value
                for key, value in zip(keys, values, strict=True)
            ]
        unknown = [i for i, value in enumerate(values) if value is _UNKNOWN]
        if unknown:
            for i, value in zip(unknown, self._db.get([keys[i] for i in unknown]), strict=True):
                values[i] = value
        return values

    def get_one(self, key: bytes) -> bytes | None:
        """The value of one key."""
        return self.get([key])[0]

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Items with start <= key < end, in order, as of the call."""
        if start >= end:
            return
        self.flush()
        options = ReadOptions()
        options.set_iterate_upper_bound(end)
        yield from self._db.items(from_key=start, read_opt=options)

    def scan_chunks(self, start: bytes, end: bytes, size: int) -> Iterator[list[tuple[bytes, bytes]]]:
        """The same in lists of at most ``size`` items: memory stays bounded however many there are."""
        chunk: list[tuple[bytes, bytes]] = []
        for item in self.scan(start, end):
            chunk.append(item)
            if len(chunk) >= size:
                yield chunk
                chunk = []
        if chunk:
            yield chunk

    def write(
        self,
        puts: Sequence[tuple[bytes, bytes]],
        deletes: Sequence[bytes] = (),
        drops: Sequence[tuple[bytes, bytes]] = (),
        *,
        meta: bytes,
    ) -> None:
        """Ranges ``drops`` are deleted first, then ``deletes``, then ``puts`` and the meta record, all or nothing."""
        if drops:
            self.flush()
            self._clean = {}
            self._write_through(puts, deletes, drops, meta)
            return
        dirty = self._dirty
        for key in deletes:
            dirty[key] = None
        dirty.update(puts)
        self._dirty_meta = meta
        self._dirty_bytes += sum(len(key) + len(value) for key, value in puts)
        self._dirty_bytes += _ENTRY_BYTES * (len(puts) + len(deletes))
        if self._dirty_bytes > self._memory_bytes:
            self.flush()

    def flush(self) -> None:
        """Everything in memory goes to RocksDB in one batch; it stays readable from memory until the next flush."""
        if self._dirty_meta is None:
            return
        # Sorted keys are inserted next to each other: half the time of random ones.
        items = sorted(self._dirty.items())
        puts = [(key, value) for key, value in items if value is not None]
        self._write_through(puts, [key for key, value in items if value is None], (), self._dirty_meta)
        self._clean, self._dirty = self._dirty, {}
        self._dirty_meta, self._dirty_bytes = None, 0

    def _write_through(
        self,
        puts: Iterable[tuple[bytes, bytes]],
        deletes: Iterable[bytes],
        drops: Iterable[tuple[bytes, bytes]],
        meta: bytes,
    ) -> None:
        batch = WriteBatch(raw_mode=True)
        for start, end in drops:
            batch.delete_range(start, end)
        for key in deletes:
            batch.delete(key)
        for key, value in puts:
            batch.put(key, value)
        batch.put(META_KEY, meta)
        self._db.write(batch, _write_options())

    def meta(self) -> bytes | None:
        """The meta record of the last commit; None for a new store."""
        return self._dirty_meta if self._dirty_meta is not None else self._db.get(META_KEY)

    def wipe(self) -> None:
        """Forget everything: the changelog is replayed from its start."""
        self._dirty, self._clean, self._dirty_meta, self._dirty_bytes = {}, {}, None, 0
        self._db.close()
        shutil.rmtree(self.directory, ignore_errors=True)
        self._db = Rdict(str(self.directory), _options())

    def close(self) -> None:
        """Write what is in memory and release the directory."""
        self.flush()
        self._db.close()


def prefix_end(prefix: bytes) -> bytes:
    """The smallest key greater than every key that starts with ``prefix``."""
    trimmed = prefix.rstrip(b"\xff")
    if not trimmed:
        raise ValueError("prefix has no end")
    return trimmed[:-1] + bytes([trimmed[-1] + 1])
