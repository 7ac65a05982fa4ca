"""The web log the demonstration protects, and the exact answers that only a demonstration may look at.

agents/data/README.md says where it comes from. The user is the host, the key is the url.
"""

import gzip
import json
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Final

FILE: Final = "nasa-http-1995-08-01.tsv.gz"
DAY: Final = "1995-08-01T00:00:00Z"
NEXT_DAY: Final = "1995-08-02T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Visit:
    """One request. time: seconds since the Unix epoch; size: bytes sent."""

    host: str
    url: str
    time: int
    size: int

    def encode(self) -> bytes:
        """The raw event as an existing producer would write it."""
        return json.dumps({"host": self.host, "url": self.url, "time": self.time, "bytes": self.size}).encode()


class WebLog:
    """All visits, sorted by time."""

    def __init__(self) -> None:
        packed = files("susurrus.agents").joinpath("data", FILE).read_bytes()
        lines = gzip.decompress(packed).decode("latin-1").splitlines()
        names = lines[0].split("\t")
        host, time, url, size = (names.index(name) for name in ("host", "time", "url", "bytes"))
        rows = (line.split("\t") for line in lines[1:])
        self.visits = [Visit(row[host], row[url], int(row[time]), int(row[size])) for row in rows]

    def __len__(self) -> int:
        return len(self.visits)

    def by_partition(self, partitions: int) -> Iterator[tuple[int, Visit]]:
        """(partition, visit) in order of time, so that every partition is sorted; a host stays in one partition."""
        for visit in self.visits:
            yield zlib.crc32(visit.host.encode()) % partitions, visit

    @cached_property
    def urls_of_host(self) -> dict[str, list[str]]:
        """The distinct urls of each host in order of first visit."""
        found: dict[str, dict[str, None]] = defaultdict(dict)
        for visit in self.visits:
            found[visit.host][visit.url] = None
        return {host: list(urls) for host, urls in found.items()}

    def true_counts(self) -> Counter[str]:
        """Hosts per url, exactly."""
        return Counter(url for urls in self.urls_of_host.values() for url in urls)
