"""The audit of private streams: neighbouring streams, JSON values in, published rows out, through the agents' own stage.

Neighbours differ in the value of one event, at a position that is public. Flow: `SCENARIOS` → `play_streams` (a trial is a
stream id of its own, in every raw partition; the stage keeps streams apart, so N trials are N runs) → audit_statistics.
audit_stream_defects has what is planted.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
from audit_memory import Clients, Memory, MemoryLedger
from audit_stream_defects import REAL, planted

from susurrus.agents.config.settings import Settings
from susurrus.agents.kafka.offset import Offset
from susurrus.agents.pipelines import settings_from
from susurrus.agents.runtime.batch import Batch
from susurrus.agents.runtime.services import Services
from susurrus.agents.stream.mechanism import EventPromise, mechanism_of, promise_of
from susurrus.agents.stream.stage import StreamStage
from susurrus.mechanisms.arrays import Int64s
from susurrus.mechanisms.stream.growth import Growth
from susurrus.mechanisms.stream.pak import Pak
from susurrus.mechanisms.stream.quantile import smooth_sensitivity
from susurrus.topics import private_stream

EPSILON = 1.0
BOUND = 32
HOLDOUT = 8
TREE = 4
"""Values of a tree of ToPS: two layers, a fanout of four, leaves of one value."""
METHODS = ("tops", "tops-paper", "pak")
_TOPS = METHODS[:2]
_SECRET = "5a" * 32
_FETCH = 5_000


_PAK = {"delta": 0.01, "tail_start": 0.49}
_OFTEN_BELOW = {"susurrus.mechanisms.stream.pak_parameters.BETA": 0.9}
"""pak's threshold is set so high that it hardly ever lies below the quantile. Where it may lie there, its noise is seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamScenario:
    """values: of one stream, in every partition, the first `holdout` of which choose the threshold. at: the position whose value is
    replaced by `by`, in the last partition. settings: of the section [stream], beside those of all. constants: public ones of the
    mechanism that are otherwise; a fault that shows only in a share of epsilon shows with a large one.
    """

    what: str
    values: tuple[int, ...]
    at: int
    by: int
    partitions: int = 1
    exposes: tuple[str, ...]
    methods: tuple[str, ...] = _TOPS
    trials: int | None = None
    """Where more or fewer than the usual ones are needed."""
    holdout: int = HOLDOUT
    rank: int | None = None
    """The rank of pak's quantile that the values are written for: with another one, a defect would not show."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)


SCENARIOS = {
    "a value of the holdout": StreamScenario(
        what="one of the values that choose the threshold",
        values=(0,) * 3 + (2,) * (HOLDOUT - 3) + (0,),  # thetas of 1 and 2 are about as likely
        at=HOLDOUT - 1,
        by=BOUND // 2,
        partitions=2,
        exposes=("threshold noise reused",),
    ),
    "a value of a tree": StreamScenario(
        what="one of the values behind the threshold, in the second tree",
        values=(BOUND,) * HOLDOUT + (0,) * (2 * TREE),
        at=HOLDOUT + TREE + 1,
        by=BOUND,
        trials=8_000,
        exposes=("tree noise reused", "leaves without noise", "layer at full epsilon"),
    ),
    "a counted value": StreamScenario(
        what="one of the values of the first tree, whose values above theta are counted",
        values=(0,) * (HOLDOUT + TREE),
        at=HOLDOUT + 1,
        by=BOUND,
        exposes=("count not charged", "theta follows within a tree"),
        methods=("tops",),
        trials=40_000,
        constants={"susurrus.agents.stream.mechanism.Growth": lambda: Growth(share=15 / 16)},
    ),
    "a value below the lower clip": StreamScenario(
        what="one of the values that a lower clip cuts off, of about as many as those for which a range from 0 is not worth while",
        values=(0,) * 6 + (4,) * 5 + (4,),
        at=10,
        by=0,
        holdout=11,
        exposes=("lower clip's noise halved", "lower clip not charged"),
        methods=("tops",),
        trials=40_000,
        # A small slope of the cost, so that few values decide.
        settings={"lower_clip": True, "growth": False, "range_limit": TREE**4, "epsilon": 2.0},
        constants={"susurrus.agents.stream.mechanism.LOWER_SHARE": 1 / 2},
    ),
    "a value of pak's holdout": StreamScenario(
        what="the value that moves pak's quantile by as much as any can, and the initial block's sum",
        values=(0,) + (2,) * 36 + (8,) * 11,
        at=0,
        by=BOUND,
        rank=37,
        holdout=48,
        exposes=("both parts at full epsilon",),
        methods=("pak",),
        trials=20_000,
        settings={**_PAK, "epsilon": 2.0, "horizon": 50},
        constants=_OFTEN_BELOW,
    ),
    "a value beside pak's quantile": StreamScenario(
        what="a value whose neighbour moves the quantile nowhere, far above it, in the initial block",
        values=(0,) + (8,) * 78 + (9,) * 17,
        at=0,
        by=8 * BOUND,
        rank=80,
        holdout=96,
        exposes=("scale of the local sensitivity", "block not clipped"),
        methods=("pak",),
        trials=4_000,
        settings={**_PAK, "bound": 8 * BOUND, "epsilon": 2.0, "horizon": 98},
        constants={**_OFTEN_BELOW, "susurrus.mechanisms.stream.pak_parameters.THRESHOLD_SHARE": 1 / 2},
    ),
    "a value of pak's tree": StreamScenario(
        what="the first value of the second tree, which enters a node of each level",
        values=(BOUND,) * 24 + (0,) * 4,
        at=26,
        by=BOUND,
        holdout=24,
        exposes=("tree noise reused", "a level not charged"),
        methods=("pak",),
        trials=8_000,
        settings={**_PAK, "delta": 0.001, "epsilon": 2.0, "horizon": 26},
    ),
}


@dataclass(frozen=True, slots=True)
class Streams:
    """What readers see in N trials: theta and lower int64[N, partitions], sums float64[N, partitions * pieces], in units of theta,
    counts float64[N, partitions] of clipped values, 0 where nothing was counted.

    Of pak the first piece is the initial block, without what the other values are known to add to it.
    """

    theta: Int64s
    lower: Int64s
    sums: npt.NDArray[np.float64]
    counts: npt.NDArray[np.float64]
    candidates: tuple[int, ...]

    def features(self) -> npt.NDArray[np.float64]:
        """float64[N, partitions * (pieces + 3)]."""
        largest = self.candidates[-1]
        return np.concatenate([self.sums, self.theta / largest, self.lower / largest, self.counts], axis=1)

    def flags(self) -> npt.NDArray[np.bool_]:
        """bool[N, 2 * candidates + 1]: the last theta is at least that candidate; so is the last lower clip; all thetas are one."""
        reached = self.theta[:, -1:] >= np.array(self.candidates)
        cut = self.lower[:, -1:] >= np.array(self.candidates)
        return np.concatenate([reached, cut, (self.theta == self.theta[:, :1]).all(axis=1)[:, None]], axis=1)

    def names(self) -> list[str]:
        """What the flags say."""
        names = [f"{of} >= {candidate}" for of in ("theta", "lower") for candidate in self.candidates]
        return [*names, "all thetas are one"]


def promise(name: str, method: str) -> EventPromise:
    """What the scenario's configuration promises."""
    return promise_of(_settings(SCENARIOS[name], method).stream)


def play_streams(name: str, method: str, *, replaced: bool, trials: int, seed: int, defect: str = REAL) -> Streams:
    """Run `trials` independent copies and return what their readers see. replaced: one value is replaced."""
    scenario = SCENARIOS[name]
    settings = _settings(scenario, method)
    with _constants(scenario):
        mechanism = mechanism_of(settings.stream)
    if isinstance(mechanism, Pak):
        rank = mechanism.threshold.rank
        assert scenario.rank in (None, rank), f"{name}: rank={rank}, but its values are written for {scenario.rank}"
    block = int(isinstance(mechanism, Pak))
    pieces = len(scenario.values) - scenario.holdout + block
    known = np.delete(scenario.values[: scenario.holdout], [scenario.at] if scenario.at < scenario.holdout else [])
    theta, lower = (np.zeros((trials, scenario.partitions), np.int64) for _ in range(2))
    sums, counts = np.zeros((trials, scenario.partitions, pieces)), np.zeros((trials, scenario.partitions))
    with _constants(scenario), _once_for_equal_values(), planted(defect):
        for partition in range(scenario.partitions):
            values = list(scenario.values)
            if replaced and partition == scenario.partitions - 1:
                values[scenario.at] = scenario.by
            services = _services(settings, scenario.partitions, seed, replaced)
            for value in _published(services, partition, values, trials):
                row = private_stream.decode_row(value)
                trial = int(row.stream)
                theta[trial, partition], lower[trial, partition] = row.theta, row.lower or 0
                piece = row.last - scenario.holdout + block
                others = np.minimum(known, row.theta).sum() if block and not piece else 0
                sums[trial, partition, piece] = (row.value.estimate - others) / row.theta
                if row.clipped is not None:
                    counts[trial, partition] += row.clipped.estimate
    if isinstance(mechanism, Pak):
        candidates = tuple(2**power for power in range(mechanism.threshold.bound.bit_length()))
    else:
        candidates = mechanism.threshold.candidates
    return Streams(theta, lower, sums.reshape(trials, -1), counts, candidates)


@contextmanager
def _constants(scenario: StreamScenario) -> Iterator[None]:
    with ExitStack() as stack:
        for target, value in scenario.constants.items():
            stack.enter_context(patch(target, value))
        yield


@contextmanager
def _once_for_equal_values() -> Iterator[None]:
    """The smooth sensitivity is a function of the held-out values, and those are the same in all trials."""
    known: dict[tuple[bytes, int, float, int], float] = {}

    def found(values: Int64s, rank: int, smoothness: float, bound: int) -> float:
        given = (values.tobytes(), rank, smoothness, bound)
        if given not in known:
            known[given] = smooth_sensitivity(values, rank, smoothness, bound)
        return known[given]

    with patch("susurrus.mechanisms.stream.quantile.smooth_sensitivity", found):
        yield


def _published(services: Services, partition: int, values: list[int], trials: int) -> Iterator[bytes]:
    store: Any = Memory(REAL)
    meta, position = StreamStage.begin(services, partition, Offset(0))
    stage = StreamStage(services, partition, store, meta, position)
    events = (json.dumps({"meter": trial, "reading": value}).encode() for trial in range(trials) for value in values)
    records = [SimpleNamespace(offset=n, timestamp=n, key=None, value=value) for n, value in enumerate(events)]
    while position < len(records):
        end = min(position + _FETCH, len(records))
        stage.take(Batch(position, end, records[position:end], 0))
        position = end
        for commit in stage.commits(0):
            store.write(commit)
            stage.committed(commit)
            for output in commit.outputs:
                if output.topic == services.topic("private-stream"):
                    yield from (message["value"] for message in output.messages)


def _settings(scenario: StreamScenario, method: str) -> Any:
    of_tops = {"range_limit": TREE**2, "fanout": TREE, "smoothing": 0} if method in _TOPS else {}
    section = {"stream": "meter", "value": "reading", "bound": BOUND, "grid": 1, "epsilon": EPSILON, **of_tops}
    return settings_from(
        {
            "pipeline": {"name": "audit", "kind": "stream"},
            "kafka": {"bootstrap_servers": "none:1"},
            "input": {"topic": "raw"},
            "start": {"from": "earliest"},
            "stream": {"method": method, "holdout": scenario.holdout, **section, **scenario.settings},
        },
        environ={"SUSURRUS_SECRET": _SECRET},
    )


def _services(settings: Settings, partitions: int, seed: int, replaced: bool) -> Services:
    clients = Clients([[] for _ in range(partitions)])
    digest = bytes(32)
    ledger = MemoryLedger(
        settings,
        clients,  # type: ignore[arg-type]
        settings.calendar,
        config_digest=digest,
        secret=bytes.fromhex(_SECRET),
        initializer=("stream", 0),
        way_out="",
        published_before=str,
    )
    with patch("os.urandom", lambda size: (2 * seed + replaced).to_bytes(size, "big")):
        ledger.found()
    return Services(
        settings=settings,
        clients=clients,  # type: ignore[arg-type]
        ledger=ledger,
        calendar=settings.calendar,
        config_digest=digest,
        secret=bytes.fromhex(_SECRET),
    )
