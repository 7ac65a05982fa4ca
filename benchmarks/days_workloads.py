"""Days in a row for benchmarks/days.py: the paper's law with keys that persist or swap places, and two data sets in windows."""

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from susurrus.agents.demo.weblog import WebLog
from susurrus.agents.planning.later import swapped
from susurrus.agents.planning.workload import (
    DAY_MS,
    FileWorkload,
    RenamedWorkload,
    Workload,
    ZipfMandelbrotDay,
    sort_records,
)

RETAIL_BASKETS = 12_594
RETAIL_DAYS = 7
NASA_SECONDS = 7740
NASA_DAYS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Days:
    """Windows in a row whose keys have the same codes. names: of the keys. each: makes the workload of a day, from 0 on."""

    name: str
    names: list[bytes]
    each: list[Workload]

    def __iter__(self) -> Iterator[Workload]:
        return iter(self.each)


def synthetic(users: int, *, drift: float, days: int, seed: int, keys: int = 1_000_000) -> Days:
    """The paper's law every day, with users of its own. Every day after the first, a share `drift` of the keys swap places."""
    names = [b"%d" % code for code in range(keys)]
    place = np.arange(keys, dtype=np.int32)
    found: list[Workload] = []
    for day in range(days):
        if day:
            place = swapped(place, drift, np.random.default_rng([seed, day]))
        law = ZipfMandelbrotDay(users=users, keys=keys, seed=seed * 1000 + day)
        found.append(RenamedWorkload(law, names, place))
    return Days(name=f"synthetic, drift {drift:g}", names=names, each=found)


def retail(path: Path, seed: int) -> Days:
    """Baskets in the order of the file, as many a day, at uniform times. Basket = user, item = key."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt") as lines:
        baskets = [line.split() for line in lines]
    names = sorted({item.encode() for basket in baskets for item in basket})
    code = {name.decode(): number for number, name in enumerate(names)}
    found: list[Workload] = []
    for day in range(RETAIL_DAYS):
        mine = baskets[day * RETAIL_BASKETS : (day + 1) * RETAIL_BASKETS]
        user = np.repeat(np.arange(len(mine), dtype=np.int32), [len(basket) for basket in mine])
        key = np.array([code[item] for basket in mine for item in basket], np.int32)
        time = np.random.default_rng([seed, day]).integers(0, DAY_MS, len(key), dtype=np.int32)
        records = sort_records(user, key, time, len(mine))
        found.append(FileWorkload(name="retail", records=records, key_names=names))
    return Days(name="retail", names=names, each=found)


def nasa() -> Days:
    """The web log of the demonstration, in windows of two hours and nine minutes. Host = user, url = key."""
    visits = WebLog().visits
    names = sorted({visit.url.encode() for visit in visits})
    code = {name.decode(): number for number, name in enumerate(names)}
    begin = visits[0].time
    found: list[Workload] = []
    for day in range(NASA_DAYS):
        first = begin + day * NASA_SECONDS
        mine = [visit for visit in visits if first <= visit.time < first + NASA_SECONDS]
        hosts: dict[str, int] = {}
        user = np.array([hosts.setdefault(visit.host, len(hosts)) for visit in mine], np.int32)
        key = np.array([code[visit.url] for visit in mine], np.int32)
        time = np.array([(visit.time - first) * DAY_MS // NASA_SECONDS for visit in mine], np.int32)
        found.append(FileWorkload(name="nasa", records=sort_records(user, key, time, len(hosts)), key_names=names))
    return Days(name="nasa", names=names, each=found)
