"""One pipeline on the oldest, the default and the newest Kafka: each published byte must be the same. For benchmarks/campaign.py.

    python benchmarks/campaign_versions.py [VERSION ...]     other releases of Apache Kafka, named as Maven does

On each version a worker publishes an archive in peace. Then workers are killed (-9) between every two steps of a commit of every
stage, on the same version, and what they have published together is compared with that. And what is published in peace is
compared with the first version's: the broker has no part in it.
"""

import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script, from anywhere

from campaign_pipelines import Compared, compare
from rich.console import Console
from rich.table import Table

from susurrus.agents.broker.artefacts import KafkaUnavailableError, kafka_version
from susurrus.agents.broker.cluster import KafkaCluster
from tests.broker import NEVER_FENCED, Broker
from tests.chaos.conftest import COPIES, published_in_peace, same_archive
from tests.pipeline import CRASHING, Pipeline, Public

OLDEST: Final = "3.6.2"
NEWEST: Final = "4.4.0"
STAGES: Final = ("route", "bound", "release")
RAW: Final = "raw-versions"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one version did. killed: with kills against without; first: without kills against the first version."""

    version: str
    killed: Compared | None = None
    first: Compared | None = None
    seconds: float = 0.0
    error: str = ""

    @property
    def sound(self) -> bool:
        """Whether everything was compared and nothing differs."""
        both = (self.killed, self.first)
        return not self.error and all(each is not None and each.compared > 0 and each.different == 0 for each in both)


def matrix() -> list[str]:
    """Oldest, default, newest; each once."""
    return list(dict.fromkeys((OLDEST, kafka_version(), NEWEST)))


@contextlib.contextmanager
def broker_of(version: str) -> Iterator[Broker]:
    """One broker of this version, for a block."""
    with KafkaCluster(short_lived=True, version=version, properties=NEVER_FENCED) as cluster:
        yield Broker(cluster.bootstrap_servers, description=f"Apache Kafka {version}", cluster=cluster)


def play(version: str, directory: Path, first: Public | None, stages: Sequence[str]) -> tuple[Outcome, Public | None]:
    """Both runs on one version, and what was published in peace."""
    began = time.monotonic()
    places = [directory / f"{version}-{kind}" for kind in ("peace", "killed")]
    for place in places:
        place.mkdir()
    try:
        with broker_of(version) as kafka:
            raw = same_archive(kafka, RAW, COPIES)
            peaceful = published_in_peace(kafka, places[0], raw)
            with Pipeline(kafka, places[1], raw, CRASHING) as pipeline:
                for stage in stages:
                    pipeline.crash_everywhere(stage, 2)
                pipeline.start()
                pipeline.wait()
                killed = compare(peaceful, pipeline.public())
    except (KafkaUnavailableError, TimeoutError, RuntimeError) as error:
        return Outcome(version, seconds=time.monotonic() - began, error=f"{type(error).__name__}: {error}"), None
    return Outcome(version, killed, compare(first or peaceful, peaceful), time.monotonic() - began), peaceful


def run_versions(
    versions: Sequence[str],
    directory: Path,
    console: Console,
    stages: Sequence[str] = STAGES,
    ends: float = float("inf"),
) -> bool:
    """Print a row for each version; whether all are sound. None is begun after ``ends``, on the monotonic clock."""
    outcomes, first = list[Outcome](), None
    for version in versions:
        outcome, peaceful = play(version, directory, first, stages)
        first = first or peaceful
        outcomes.append(outcome)
        console.print(
            f"Kafka {version}: {'no difference' if outcome.sound else outcome.error or 'DIFFERS'}", markup=False
        )
    shown = Table(title="Versions of Apache Kafka: bytes compared, and bytes that differ")
    for name in ("Kafka", "with kills", "different", f"with {versions[0]}", "different", "seconds"):
        shown.add_column(name, justify="right")
    for each in outcomes:
        cells = [f"{one.compared:,} {one.different:,}" if one else "failed -" for one in (each.killed, each.first)]
        shown.add_row(each.version, *" ".join(cells).split(), f"{each.seconds:.0f}")
    console.print(shown)
    return all(each.sound for each in outcomes)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="versions-") as place:
        sys.exit(0 if run_versions(sys.argv[1:] or matrix(), Path(place), Console()) else 1)
