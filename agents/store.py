"""The local state of one partition task: RocksDB in raw bytes, written in ONE batch per commit, after the Kafka commit.

It is a cache of the changelog, never an authority: its meta record says up to which changelog offset it is complete, and
whatever is missing is replayed (agents/changelog.py). It is opened by exactly one task thread.
"""

import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

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
    return options


class Store:
    """Byte keys to byte values; keys sort bytewise. The first byte names the table (agents/histogram/*)."""

    def __init__(self, directory: Path, *, lock_seconds: float = 10.0) -> None:
        self.directory = directory
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
        return self._db.get(list(keys)) if keys else []

    def get_one(self, key: bytes) -> bytes | None:
        """The value of one key."""
        value: bytes | None = self._db.get(key)
        return value

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Items with start <= key < end, in order, as of the call."""
        if start >= end:
            return
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
        puts: Iterable[tuple[bytes, bytes]],
        deletes: Iterable[bytes] = (),
        drops: Iterable[tuple[bytes, bytes]] = (),
        *,
        meta: bytes,
    ) -> None:
        """Ranges ``drops`` are deleted first, then ``deletes``, then ``puts`` and the meta record, all or nothing."""
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
        """The meta record of the last commit this store has seen; None for a new store."""
        return self.get_one(META_KEY)

    def wipe(self) -> None:
        """Forget everything: the changelog is replayed from its start."""
        self._db.close()
        shutil.rmtree(self.directory, ignore_errors=True)
        self._db = Rdict(str(self.directory), _options())

    def close(self) -> None:
        """Release the directory."""
        self._db.close()


def prefix_end(prefix: bytes) -> bytes:
    """The smallest key greater than every key that starts with ``prefix``."""
    trimmed = prefix.rstrip(b"\xff")
    if not trimmed:
        raise ValueError("prefix has no end")
    return trimmed[:-1] + bytes([trimmed[-1] + 1])
