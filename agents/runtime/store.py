"""The local state of one partition task: RocksDB in raw bytes behind a bounded layer of memory.

It is a cache of the changelog, never an authority. Its meta record says up to which changelog offset it is complete, and what is
missing is replayed (changelog.py). Commits are written after the Kafka commit, first into memory. When that has grown, all of it
goes to RocksDB in ONE batch with the meta record of the last commit. So the disk always holds the state after some commit, though
not always the last. Exactly one task thread opens it.

A store whose disk is known to be unusable is abandoned instead of closed (disk.py).

A store that the task before still has open is waited for. A corrupt one is wiped. Every method raises StoreUnusable for a disk
that is full, read-only or failing.
"""

import contextlib
import errno
import functools
import os
import re
import shutil
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from weakref import WeakSet

from rocksdict import BlockBasedOptions, Cache, Options, Rdict, ReadOptions, WriteBatch, WriteOptions

from susurrus.mechanisms.errors import StoreUnusable

META_KEY = b"\x00meta"
FIRST_STATE_KEY = b"\x01"
OPEN_TABLES = 256
"""The most tables that a store keeps open."""

_cache_bytes = 256 << 20


def set_cache_bytes(size: int) -> None:
    """Size of the block cache, before the first store is opened (``worker.cache_bytes``)."""
    global _cache_bytes
    _cache_bytes = size


@functools.cache
def _shared_cache() -> Cache:
    """One block cache for all stores of a worker: memory is bounded by it, not by the number of partitions."""
    return Cache(_cache_bytes)


def _options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(16 << 20)
    options.set_max_write_buffer_number(2)
    options.set_arena_block_size(_ARENA_BYTES)
    options.set_keep_log_file_num(2)
    options.set_max_open_files(OPEN_TABLES)
    options.increase_parallelism(2)
    table = BlockBasedOptions()
    table.set_block_cache(_shared_cache())
    table.set_bloom_filter(10, False)
    table.set_cache_index_and_filter_blocks(True)
    options.set_block_based_table_factory(table)
    return options


def _write_options() -> WriteOptions:
    """There is no write-ahead log: after a crash, what is missing is replayed from the changelog."""
    options = WriteOptions()
    options.disable_wal = True
    options.memtable_insert_hint_per_batch = True
    return options


_MEMORY_BYTES = 24 << 20
_WORKER_MEMORY_BYTES = 256 << 20
"""Shared by the stores of a worker, so that its memory does not grow with its partitions."""
_MEMTABLE_BYTES = 4 << 20
"""RocksDB writes a store's memtable to a file when it takes more. Its own limit would count at the next write only, an hour later
perhaps, and each scan adds a window's rows: the memory of a worker with a few keys seemed to grow for thousands of triggers."""
_WORKER_MEMTABLE_BYTES = 64 << 20
"""Shared by the stores of a worker, too."""
_ARENA_BYTES = 256 << 10
"""A memtable takes memory in pieces of this size."""
_ENTRY_BYTES = 150
"""What an entry of a dictionary of byte strings costs beside the bytes."""
_REPLAYED = 4
"""A flush is due at the latest after so many times the memory was written, which bounds the replay after a crash."""
_MANY_ROWS = 10_000
"""Where a range has more rows than this on the disk, RocksDB deletes the range; else it deletes the rows. For the first read
after each deleted range it sorts all that its memory holds. With a few rows in each, that soon takes a second and hundreds of
megabytes. Ranges with many rows are few, because the rows fill that memory."""
_WIPES = 3
"""The disk fails if a new store is corrupt at once so many times in a row."""


_ACTIVE_MEMTABLE = "rocksdb.cur-size-active-mem-table"

_open_stores: "WeakSet[Store]" = WeakSet()
_abandoned: "list[Store]" = []
"""Stores whose disk could not be written when their tasks ended. RocksDB would wait a second for each, one after the other."""


def abandoned() -> bool:
    """Whether stores are still open that nobody uses. Only the end of the process, or a disk that can be written, closes them."""
    return bool(_abandoned)


def release_abandoned() -> None:
    """Close them, now that their disk can be written."""
    while _abandoned:
        with contextlib.suppress(Exception):  # what was not written is replayed
            _abandoned.pop().close()


class Store:
    """Byte keys to byte values; keys sort bytewise. The first byte names the table (agents/histogram/*)."""

    def __init__(self, directory: Path, *, lock_seconds: float = 10.0, memory_bytes: int | None = None) -> None:
        self.directory = directory
        self._given_memory = memory_bytes
        _open_stores.add(self)
        self._dirty: dict[bytes, bytes] = {}
        self._deleted: set[bytes] = set()
        self._clean: dict[bytes, bytes] = {}
        self._dirty_meta: bytes | None = None
        self._dirty_bytes = 0
        self._memory_limit = self._memory_bytes
        with usable(directory):
            directory.parent.mkdir(parents=True, exist_ok=True)
            self._db = self._open(time.monotonic() + lock_seconds)

    def _open(self, deadline: float) -> Rdict:
        wiped = 0
        while True:
            try:
                return Rdict(str(self.directory), _options())
            except Exception as error:
                if is_corrupt(error):
                    # Another process that has the store open would hold the lock, so it cannot be the cause.
                    if wiped == _WIPES:
                        raise StoreUnusable(errno.EIO, self.directory, "a new store is corrupt at once") from error
                    wiped += 1
                    shutil.rmtree(self.directory)
                    continue
                # The task that had the partition before us may still be closing it.
                if not _is_locked(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    @property
    def _memory_bytes(self) -> int:
        """Bytes written since the last flush after which the rows in memory are weighed."""
        if self._given_memory is not None:
            return self._given_memory
        return min(_MEMORY_BYTES, _WORKER_MEMORY_BYTES // max(1, len(_open_stores)))

    @property
    def _memtable_bytes(self) -> int:
        """Bytes of the memtable above which it is written to a file."""
        return min(_MEMTABLE_BYTES, _WORKER_MEMTABLE_BYTES // max(1, len(_open_stores)))

    @property
    def disk_bytes(self) -> int:
        """Bytes of the files on the disk, as far as it answers. What is in memory only is not among them. Any thread may ask."""
        found = 0
        with contextlib.suppress(OSError), os.scandir(self.directory) as files:
            for file in files:
                with contextlib.suppress(FileNotFoundError):  # RocksDB replaces its files meanwhile
                    found += file.stat().st_size
        return found

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of many keys, None where absent."""
        if not keys:
            return []
        values = list(map(self._dirty.get, keys))
        for older in (self._clean_values, self._stored_values) if self._clean else (self._stored_values,):
            if None not in values:
                break
            deleted = self._deleted
            unknown = [i for i, value in enumerate(values) if value is None and keys[i] not in deleted]
            for i, value in zip(unknown, older([keys[i] for i in unknown]), strict=True):
                values[i] = value
        return values

    def _clean_values(self, keys: list[bytes]) -> list[bytes | None]:
        return list(map(self._clean.get, keys))

    def _stored_values(self, keys: list[bytes]) -> list[bytes | None]:
        with usable(self.directory):
            found: list[bytes | None] = self._db.get(keys)
        return found

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
        with usable(self.directory):
            yield from self._db.items(from_key=start, read_opt=options)

    def scan_chunks(self, start: bytes, end: bytes, size: int) -> Iterator[list[tuple[bytes, bytes]]]:
        """The same in lists of at most ``size`` items: memory stays bounded however many there are."""
        items = self.scan(start, end)
        while chunk := list(islice(items, size)):
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
            stored = self._stored_keys(drops)
            if stored is None:
                self.flush()
                self._clean = {}
                self._write_through(puts, deletes, drops, meta)
                return
            self._drop(drops, stored)
        if deletes:
            self._deleted.update(deletes)
            for key in deletes:
                self._dirty.pop(key, None)
                self._clean.pop(key, None)
        if puts:
            keys, values = zip(*puts, strict=True)
            self._dirty.update(puts)
            self._deleted.difference_update(keys)
            self._dirty_bytes += sum(map(len, keys)) + sum(map(len, values)) + _ENTRY_BYTES * len(puts)
        self._dirty_bytes += _ENTRY_BYTES * len(deletes)
        self._dirty_meta = meta
        if self._dirty_bytes > self._memory_limit:
            self._make_room()

    def _stored_keys(self, drops: Sequence[tuple[bytes, bytes]]) -> list[bytes] | None:
        """Keys that RocksDB has in these ranges; None where they are too many to be deleted one by one."""
        keys: list[bytes] = []
        for start, end in drops:
            if start < end:
                options = ReadOptions()
                options.set_iterate_upper_bound(end)
                with usable(self.directory):
                    keys += islice(self._db.keys(from_key=start, read_opt=options), _MANY_ROWS + 1 - len(keys))
            if len(keys) > _MANY_ROWS:
                return None
        return keys

    def _drop(self, drops: Sequence[tuple[bytes, bytes]], stored: list[bytes]) -> None:
        """Delete ranges in memory, and note that RocksDB still has the keys ``stored`` there."""
        unwritten = sorted(self._dirty)
        for start, end in drops:
            for key in unwritten[bisect_left(unwritten, start) : bisect_left(unwritten, end)]:
                self._dirty.pop(key, None)  # ranges may overlap
        for key in stored:
            self._clean.pop(key, None)
        self._deleted.update(stored)
        self._dirty_bytes += _ENTRY_BYTES * len(stored)

    def _make_room(self) -> None:
        """Flush, unless the same rows were written again and again, as those of a window's users are."""
        dirty = self._dirty
        held = sum(map(len, dirty)) + sum(map(len, dirty.values())) + _ENTRY_BYTES * (len(dirty) + len(self._deleted))
        if held > self._memory_bytes / 2 or self._dirty_bytes > _REPLAYED * self._memory_bytes:
            self.flush()
        else:
            self._memory_limit += self._memory_bytes

    def flush(self) -> None:
        """Write everything in memory to RocksDB in one batch. It stays readable from memory until the next flush."""
        if self._dirty_meta is None:
            return
        # Sorted keys are inserted next to each other, in half the time of random ones.
        dirty = self._dirty
        self._write_through([(key, dirty[key]) for key in sorted(dirty)], sorted(self._deleted), (), self._dirty_meta)
        self._clean, self._dirty, self._deleted = dirty, {}, set()
        self._dirty_meta, self._dirty_bytes, self._memory_limit = None, 0, self._memory_bytes

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
        with usable(self.directory):
            self._db.write(batch, _write_options())
            if self._db.property_int_value(_ACTIVE_MEMTABLE) > self._memtable_bytes:
                self._db.flush(wait=False)

    def meta(self) -> bytes | None:
        """The meta record of the last commit; None for a new store."""
        if self._dirty_meta is not None:
            return self._dirty_meta
        with usable(self.directory):
            meta: bytes | None = self._db.get(META_KEY)
        return meta

    def wipe(self) -> None:
        """Delete everything, so that the changelog is replayed from its start."""
        self._forget()
        with usable(self.directory):
            self._db.close()
            shutil.rmtree(self.directory, ignore_errors=True)
            self._db = Rdict(str(self.directory), _options())

    def _forget(self) -> None:
        """Drop what is in memory."""
        self._dirty, self._clean, self._deleted, self._dirty_meta, self._dirty_bytes = {}, {}, set(), None, 0
        self._memory_limit = self._memory_bytes

    def close(self) -> None:
        """Write what is in memory and release the directory, also where it cannot be written."""
        try:
            self.flush()
        finally:
            self._forget()  # a task that waits before it tries again still has this store, for minutes
            _open_stores.discard(self)
            with usable(self.directory):
                self._db.close()

    def abandon(self) -> None:
        """Leave the store as it is, open, because its disk cannot be written: returns at once. The process ends soon, or
        ``release_abandoned`` is called."""
        _open_stores.discard(self)
        _abandoned.append(self)


def is_corrupt(error: Exception) -> bool:
    """Whether RocksDB says that its files are damaged, so that the store must be wiped."""
    return str(error).startswith("Corruption")


def _is_locked(error: Exception) -> bool:
    """Whether another task, here or in another process, has the store open."""
    return re.match("IO error: (lock hold by current process|While lock file)", str(error)) is not None


@contextlib.contextmanager
def usable(path: Path) -> Iterator[None]:
    """Raise StoreUnusable for the operating system's errors on a file. All other errors pass unchanged."""
    try:
        yield
    except StoreUnusable:
        raise
    except Exception as error:
        number = _errno(error)
        if number is None or _is_locked(error):
            raise
        raise StoreUnusable(number, path, os.strerror(number)) from error


def _errno(error: Exception) -> int | None:
    """The operating system's number, or None if the error is not about a file. RocksDB's binding has it in the text only."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    text = str(error)
    if (found := re.search(r"\(os error (\d+)\)$", text)) is not None:
        return int(found[1])
    if not text.startswith("IO error"):
        return None
    said = text.rpartition(": ")[2]
    return next((number for number in errno.errorcode if os.strerror(number) == said), errno.EIO)


def prefix_end(prefix: bytes) -> bytes:
    """The smallest key greater than every key that starts with ``prefix``."""
    trimmed = prefix.rstrip(b"\xff")
    if not trimmed:
        raise ValueError("prefix has no end")
    return trimmed[:-1] + bytes([trimmed[-1] + 1])
