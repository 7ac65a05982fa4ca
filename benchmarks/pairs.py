"""Files of (user, key) pairs as workloads: benchmarks/table1.py, sweep.py and scenarios.py."""

import gzip
from pathlib import Path

import numpy as np

from susurrus.agents.planning.workload import DAY_MS, FileWorkload, sort_records


def read_pairs(
    path: Path,
    *,
    baskets: bool = False,
    header: bool = False,
    columns: tuple[int, int] = (0, 1),
    time_column: int | None = None,
    seed: int = 0,
) -> FileWorkload:
    """Reads (user, key) pairs, plain or gzipped.

    One pair a line, separated by tabs, commas or white space (tabs win, then commas); `columns` says which fields are
    the user and the key. With `baskets`, a line is one user and its white-space separated items are the keys.
    `time_column` is a number on any linear scale, stretched over the day; without it every record gets a uniform time
    of day from `seed`.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    users: dict[str, int] = {}
    keys: dict[str, int] = {}
    user: list[int] = []
    key: list[int] = []
    stamps: list[float] = []
    with opener(path, "rt", encoding="utf-8", errors="replace") as lines:
        if header:
            next(lines)
        for number, line in enumerate(lines):
            if baskets:
                items = line.split()
                user.extend([number] * len(items))
                key.extend(keys.setdefault(item, len(keys)) for item in items)
                continue
            line = line.rstrip("\r\n")
            if not line:
                continue
            fields = line.split("\t") if "\t" in line else line.split(",") if "," in line else line.split()
            user.append(users.setdefault(fields[columns[0]], len(users)))
            key.append(keys.setdefault(fields[columns[1]], len(keys)))
            if time_column is not None:
                stamps.append(float(fields[time_column]))
    if time_column is None:
        time = np.random.default_rng(seed).integers(0, DAY_MS, len(user), dtype=np.int32)
    else:
        when = np.asarray(stamps)
        span = when.max() - when.min() + 1e-9
        time = np.minimum((when - when.min()) / span * DAY_MS, DAY_MS - 1).astype(np.int32)
    count = max(user, default=-1) + 1
    records = sort_records(np.asarray(user, np.int32), np.asarray(key, np.int32), time, count)
    return FileWorkload(name=path.name, records=records, key_names=[k.encode() for k in keys])
