#!/usr/bin/env python3
"""What caps lose of bursts, in the order of the log and in that of a keyed hash.

    python benchmarks/bursts.py --retail retail.dat.gz     the table of docs/guarantees/bounding.md
    python benchmarks/bursts.py --check                    whether the page has the rows of the NASA log

Each user's distinct keys, of which the first C are kept, in T triggers. NASA: one day of a web log with its times (agents/demo).
Retail: 88,162 baskets, each a user whose items come sorted and at once; it is not shipped (fimi.uantwerpen.be). "l1" is the sum of
|true - factor x kept| over keys, as a share of all records, with one factor for all keys, true / kept: what no common factor mends.
"""

import argparse
import gzip
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tables import table

from susurrus.agents.demo.weblog import WebLog
from susurrus.agents.planning.spool import public_priorities
from susurrus.agents.planning.workload import UserRecords
from susurrus.mechanisms.histogram.bounding import Bounding, UserKeys
from susurrus.mechanisms.histogram.record_order import in_order

PAGE = Path(__file__).resolve().parents[1] / "docs" / "guarantees" / "bounding.md"
DAY_S = 86_400
CAPS = 8, 16, 32


def nasa() -> UserRecords:
    """Distinct (host, url) pairs at their first times, in the order of the log."""
    log = WebLog()
    first = {(visit.host, visit.url): visit.time for visit in reversed(log.visits)}
    hosts, host = np.unique([host for host, _ in first], return_inverse=True)
    _, url = np.unique([url for _, url in first], return_inverse=True)
    seconds = np.fromiter(first.values(), np.int64, len(first)) % DAY_S
    order = np.lexsort((seconds, host))
    columns = {"user": host[order], "key": url[order], "time": seconds[order] * 1000}
    return UserRecords(**{name: column.astype(np.int32) for name, column in columns.items()}, users=len(hosts))


def retail(path: Path) -> UserRecords:
    """A user for each basket, all of whose items come at once, as the file has them: sorted."""
    with gzip.open(path, "rt") as lines:
        baskets = [np.array(line.split(), np.int32) for line in lines]
    user = np.repeat(np.arange(len(baskets), dtype=np.int32), [len(basket) for basket in baskets])
    return UserRecords(user=user, key=np.concatenate(baskets), time=np.zeros(len(user), np.int32), users=len(baskets))


def kept(records: UserRecords, cap: int, triggers: int, *, hashed: bool) -> npt.NDArray[np.bool_]:
    """bool[n]: the records that the cap keeps."""
    turn = public_priorities(records, 0) if hashed else np.zeros(len(records.key), np.uint32)
    rows = in_order(records.user.astype(np.int64) * (triggers + 1) + records.trigger(triggers), turn)
    caps = Bounding(max_records=cap, max_records_per_key=1)
    of_user = np.ones(records.users, np.int32)
    closed = caps.close(records.user[rows], records.key[rows], of_user, UserKeys.empty(records.users))
    out = np.zeros(len(rows), np.bool_)
    out[rows] = closed.kept
    return out


def left_over(records: UserRecords, stays: npt.NDArray[np.bool_]) -> float:
    """l1 after one common factor, as a share of all records."""
    true = np.bincount(records.key)
    counts = np.bincount(records.key[stays], minlength=len(true))
    return float(np.abs(true - counts * (true.sum() / counts.sum())).sum() / true.sum())


def rows_of(name: str, records: UserRecords, triggers: int) -> Iterator[list[str]]:
    """One row for each cap."""
    for cap in CAPS:
        log, by_hash = (kept(records, cap, triggers, hashed=hashed) for hashed in (False, True))
        assert log.sum() == by_hash.sum()
        found = (f"{log.mean():.3f}", f"{left_over(records, log):.3f}", f"{left_over(records, by_hash):.3f}")
        yield [f"{name}, T = {triggers}", str(cap), *found]


def main(arguments: list[str] | None = None) -> int:
    """Print the table, or compare the page's rows with those of the NASA log."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--retail", type=Path, help="retail.dat.gz of the FIMI repository; it is not shipped")
    parser.add_argument("--check", action="store_true", help="exit with 1 unless the page has the rows")
    options = parser.parse_args(arguments)
    log = nasa()
    rows = [row for triggers in (1, 24, 96) for row in rows_of("NASA", log, triggers)]
    if options.retail is not None:
        rows += rows_of("retail", retail(options.retail), 1)
    header = ["data", "C", "records kept", "l1, order of the log", "l1, order of the hash"]
    text = "\n".join(table(header, rows))
    if options.check:
        return int(not all(line in PAGE.read_text(encoding="utf-8") for line in text.splitlines()))
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
