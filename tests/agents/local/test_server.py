"""The server without Kafka: theta follows the level, versions are spaced, a successor publishes the same bytes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from susurrus.agents.local.server import FOLLOWED, METHOD, ServerStage
from susurrus.agents.local.settings import LocalSettings
from susurrus.agents.runtime.services import Services
from susurrus.mechanisms.local.estimate import Totals
from susurrus.mechanisms.local.hybrid import Hybrid
from susurrus.mechanisms.local.wave import SquareWave
from susurrus.topics import estimate as estimate_codec
from susurrus.topics import report_totals as totals_codec
from susurrus.topics import threshold as threshold_codec
from susurrus.topics import tick as tick_codec
from susurrus.topics.estimate import EstimateRow
from susurrus.topics.report_totals import BUCKETS, ReportTotals
from susurrus.topics.threshold import ThresholdRecord
from tests.agents.cycles import no_cycles
from tests.agents.stages import SECRET, WINDOW, MemoryClients, MemoryLedger, Runner
from tests.golden.make_digests import other
from tests.samples import seeded

INTERVAL, LATENESS = 60_000, 30_000
FIRST = WINDOW // INTERVAL
LOCAL = {"bound": 1000.0, "epsilon": 2.0, "holdout": 6_000, "horizon": 50_000}


def settings(**local: Any) -> LocalSettings:
    found = other("local", {**LOCAL, **local}, topics={"by_user_partitions": 1})
    assert isinstance(found, LocalSettings)
    return found


def values(n: int, seed: int, level: float = 1.0) -> np.ndarray:
    return (level * np.random.default_rng(seed).gamma(2.0, 10.0, n)).clip(0, 1000)


class LocalServer:
    """A server, and clients that use the newest threshold at once."""

    def __init__(self, directory: Path, **local: Any) -> None:
        configured = settings(**local)
        services = Services(
            settings=configured,
            clients=MemoryClients(),  # type: ignore[arg-type]
            ledger=MemoryLedger(configured, sources=1),  # type: ignore[arg-type]
            calendar=configured.calendar,
            config_digest=bytes(32),
            secret=SECRET,
        )
        self.runner = Runner(ServerStage, services, directory)
        self.log: list[bytes] = []
        self.records = 0
        self.interval = FIRST

    @property
    def now(self) -> int:
        """When the last interval is closed."""
        return self.interval * INTERVAL + LATENESS

    def phase_one(self, n: int = 6_500) -> None:
        wave = SquareWave(2.0, 1000.0, "log")
        counts = wave.bucket_counts(wave.randomise(values(n, 1), seeded(1)), BUCKETS)
        nothing = {name: np.zeros(0, np.int64) for name in totals_codec.COLUMNS}
        self._feed(ReportTotals(partition=0, **nothing, first_phase=counts))
        self.runner.commit(now=self.now)

    def minute(self, level: float = 1.0, n: int = 4_000) -> None:
        """One interval of reports. Where a threshold was just published, half of them are under the one before."""
        *_, newest = thresholds = self.thresholds()
        fresh = len(thresholds) > 1 and newest.published == self.now
        parts = [(newest, n // 2), (thresholds[-2], n - n // 2)] if fresh else [(newest, n)]
        reported, rows = values(n, self.interval, level), []
        for threshold, count in parts:
            part, reported = reported[:count], reported[count:]
            perturber = Hybrid(threshold.epsilon, threshold.alpha)
            totals = Totals.of(perturber.randomise(part / threshold.theta, seeded(self.interval)))
            numbers = (totals.wide, totals.codes, totals.squares, totals.bits, totals.ones)
            rows.append((self.interval, threshold.version, *numbers))
        columns = dict(zip(totals_codec.COLUMNS, np.array(rows, np.int64).T, strict=True))
        self._feed(ReportTotals(partition=0, **columns, first_phase=np.zeros(BUCKETS, np.int64)))
        self.log.append(tick_codec.encode(tick_codec.Tick(0, self.interval, self.records, bytes(32))))
        self.interval += 1
        self.runner.feed(self.log, len(self.log))
        self.runner.commit(now=self.now)

    def _feed(self, block: ReportTotals) -> None:
        self.log.append(totals_codec.encode(block))
        self.records += 1
        self.runner.feed(self.log, len(self.log))

    def thresholds(self) -> list[ThresholdRecord]:
        found = self.runner.to("threshold")
        return [threshold_codec.decode(value or b"") for _, _, key, value, _ in found if key != threshold_codec.CURRENT]

    def rows(self) -> list[EstimateRow]:
        return [estimate_codec.decode(value or b"") for _, _, _, value, _ in self.runner.to("estimate")]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LocalServer]:
    found = LocalServer(tmp_path / "server")
    yield found
    found.runner.close()


def test_a_level_that_stays_keeps_the_first_theta(server: LocalServer) -> None:
    server.phase_one()
    for _ in range(40):
        server.minute()
    [threshold] = server.thresholds()
    assert (threshold.method, threshold.version) == (METHOD, 1)


def test_nothing_of_an_interval_waits_for_the_collector(server: LocalServer) -> None:
    with no_cycles():
        server.phase_one()
        for _ in range(40):
            server.minute()
    assert len(server.rows()) > 30


def test_theta_follows_the_level_up_and_down(server: LocalServer) -> None:
    server.phase_one()
    for _ in range(15):
        server.minute(3.0)
    up = server.thresholds()
    first, top = up[0], up[-1]
    assert top.method == FOLLOWED
    assert 2.2 * first.theta < top.theta < 4.5 * first.theta
    assert (top.alpha, top.reports, top.horizon) == (first.alpha, first.reports, first.horizon)
    assert [one.version for one in up] == list(range(1, len(up) + 1))
    for _ in range(250):
        server.minute(1.0)
    assert server.thresholds()[-1].theta < 0.7 * top.theta


def test_the_sums_of_a_risen_level_lose_little_and_without_following_much(tmp_path: Path) -> None:
    lost = {}
    for follow in (True, False):
        server = LocalServer(tmp_path / str(follow), follow=follow)
        server.phase_one()
        for _ in range(30):
            server.minute(6.0)
        truth = sum(values(4_000, FIRST + number, 6.0).sum() for number in range(10, 30))
        lost[follow] = 1 - sum(row.sum.estimate for row in server.rows()[10:]) / truth
        assert follow or len(server.thresholds()) == 1
        server.runner.close()
    assert abs(lost[True]) < 0.02
    assert lost[False] > 0.1


def test_versions_are_so_far_apart_that_no_report_in_time_is_refused(server: LocalServer) -> None:
    server.phase_one()
    for number in range(60):
        server.minute((1.0, 4.0, 0.3)[number // 5 % 3])
    published = [threshold.published for threshold in server.thresholds()]
    assert len(published) > 3
    assert min(np.diff(published)) >= INTERVAL + LATENESS


def test_the_filter_goes_on_across_thresholds(server: LocalServer) -> None:
    """Twenty steady intervals after theta's last change: the filtered error is that of many intervals."""
    server.phase_one()
    for _ in range(40):
        server.minute(2.0, n=300)
    rows = server.rows()
    assert len({row.threshold_version for row in rows}) > 1
    assert all(row.filtered_sum is not None for row in rows)
    last = rows[-1]
    assert last.filtered_sum is not None
    assert last.filtered_sum.std_error < 0.8 * last.sum.std_error
    refused = [row for row in rows if row.filtered_sum == row.sum]
    assert len(refused) < 8


@pytest.mark.parametrize("follow", [True, False])
def test_a_successor_publishes_the_same_bytes(tmp_path: Path, follow: bool) -> None:
    """Memory is lost after every third interval: what is published is that of the undisturbed server, byte for byte."""
    written = []
    for disturbed in (False, True):
        server = LocalServer(tmp_path / f"{disturbed}", follow=follow)
        server.phase_one()
        for number in range(30):
            server.minute(1.0 + 0.1 * number, n=500)
            if disturbed and number % 3 == 0:
                server.runner.restart()
        written.append(server.runner.to("threshold", "estimate"))
        server.runner.close()
    assert written[0] == written[1]
    assert follow == any(key == b"version/2" for _, _, key, _, _ in written[0])


def test_the_state_of_an_earlier_release_goes_on_and_theta_stays(server: LocalServer) -> None:
    """Before theta followed, the state had one version's totals and no levels."""
    server.phase_one()
    server.minute()
    meta = server.runner.meta
    assert meta is not None
    state = meta.pop("filter")
    [[alpha, *totals]] = state["pooled"]
    meta |= {"pooled": [1, totals], "bank": state["bank"]}
    del meta["fitted"], meta["follower"]
    server.runner.restart()
    for _ in range(10):
        server.minute(4.0)
    assert len(server.rows()) == 11
    assert len(server.thresholds()) == 1
    assert alpha == server.thresholds()[0].alpha


def test_the_default_keeps_the_digest_and_its_opposite_does_not() -> None:
    assert settings().config_digest() == settings(follow=True).config_digest()
    assert settings().config_digest() != settings(follow=False).config_digest()
    assert "follow" not in settings().published_json()
