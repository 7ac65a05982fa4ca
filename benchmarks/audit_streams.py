"""The audit of private streams: neighbouring streams, JSON values in, published rows out, through the agents' own stage.

Neighbours differ in the value of one event, at a position that is public; δ is 0. Flow: `SCENARIOS` → `play_streams` (a trial
is a stream id of its own, in every raw partition; the stage keeps streams apart, so N trials are N runs) → audit_statistics.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
from audit_memory import Clients, Memory, MemoryLedger

from susurrus.agents.config.settings import Settings
from susurrus.agents.pipelines import settings_from
from susurrus.agents.runtime.batch import Batch
from susurrus.agents.runtime.services import Services
from susurrus.agents.stream.mechanism import mechanism_of
from susurrus.agents.stream.stage import Stream
from susurrus.mechanisms.stream.addresses import AddressedNoise, Ints, address
from susurrus.mechanisms.stream.growth import SHARE, Growth
from susurrus.mechanisms.stream.hierarchy import Hierarchy
from susurrus.mechanisms.stream.table import TopsTable
from susurrus.topics import private_stream

REAL = "none"
DEFECTS = {
    "threshold noise reused": "the noise of a threshold is addressed by the stream's id alone, so two holdouts share it",
    "tree noise reused": "every tree of a stream has the first one's noise",
    "leaves without noise": "the lowest layer of a tree is not measured but known",
    "layer at full epsilon": "every layer has the noise of a tree with one layer",
    "count not charged": "the sums of a tree whose clipped values are counted have the whole epsilon",
    "theta follows within a tree": "theta rises as soon as a value of the open tree lies above it",
}
EPSILON = 1.0
BOUND = 32
HOLDOUT = 8
TREE = 4
"""Values of a tree: two layers, a fanout of four, leaves of one value."""
METHODS = ("tops", "tops-paper")
_SECRET = "5a" * 32
_FETCH = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamScenario:
    """values: of one stream, in every partition. at: the position whose value is replaced by `by`, in the last partition."""

    what: str
    values: tuple[int, ...]
    at: int
    by: int
    partitions: int
    exposes: tuple[str, ...]
    methods: tuple[str, ...] = METHODS
    trials: int | None = None
    """Where more or fewer than the usual ones are needed."""
    count_share: float = SHARE
    """Of a tree's epsilon, where its clipped values are counted: a count that is not charged shows with a large one."""


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
        partitions=1,
        trials=8_000,
        exposes=("tree noise reused", "leaves without noise", "layer at full epsilon"),
    ),
    "a counted value": StreamScenario(
        what="one of the values of the first tree, whose values above theta are counted",
        values=(0,) * (HOLDOUT + TREE),
        at=HOLDOUT + 1,
        by=BOUND,
        partitions=1,
        exposes=("count not charged", "theta follows within a tree"),
        methods=("tops",),
        trials=40_000,
        count_share=15 / 16,
    ),
}


@dataclass(frozen=True, slots=True)
class Streams:
    """What readers see in N trials: theta int64[N, partitions], sums float64[N, partitions * leaves], in units of theta, counts
    float64[N, partitions] of clipped values, 0 where nothing was counted."""

    theta: Ints
    sums: npt.NDArray[np.float64]
    counts: npt.NDArray[np.float64]
    candidates: tuple[int, ...]

    def features(self) -> npt.NDArray[np.float64]:
        """float64[N, partitions * (leaves + 2)]."""
        return np.concatenate([self.sums, self.theta / BOUND, self.counts], axis=1)

    def flags(self) -> npt.NDArray[np.bool_]:
        """bool[N, candidates + 1]: the last theta is at least that candidate; all thetas are 1."""
        reached = self.theta[:, -1:] >= np.array(self.candidates)
        return np.concatenate([reached, (self.theta == self.theta[:, :1]).all(axis=1)[:, None]], axis=1)

    def names(self) -> list[str]:
        """What the flags say."""
        return [f"theta >= {candidate}" for candidate in self.candidates] + ["all thetas are one"]


def play_streams(name: str, method: str, *, replaced: bool, trials: int, seed: int, defect: str = REAL) -> Streams:
    """Run `trials` independent copies and return what their readers see. replaced: one value is replaced."""
    scenario = SCENARIOS[name]
    settings = _settings(method)
    assert settings.stream is not None
    mechanism = mechanism_of(settings.stream)
    assert (mechanism.base.leaf, mechanism.base.leaves) == (1, TREE)
    leaves = len(scenario.values) - HOLDOUT
    theta = np.zeros((trials, scenario.partitions), np.int64)
    sums, counts = np.zeros((trials, scenario.partitions, leaves)), np.zeros((trials, scenario.partitions))
    growth = patch("susurrus.agents.stream.mechanism.Growth", lambda: Growth(share=scenario.count_share))
    with planted(defect), growth:
        for partition in range(scenario.partitions):
            values = list(scenario.values)
            if replaced and partition == scenario.partitions - 1:
                values[scenario.at] = scenario.by
            services = _services(settings, scenario.partitions, seed, replaced)
            for value in _published(services, partition, values, trials):
                row = private_stream.decode_row(value)
                theta[int(row.stream), partition] = row.theta
                sums[int(row.stream), partition, row.first - HOLDOUT] = row.value.estimate / row.theta
                if row.clipped is not None:
                    counts[int(row.stream), partition] += row.clipped.estimate
    return Streams(theta, sums.reshape(trials, -1), counts, mechanism.threshold.candidates)


def _published(services: Services, partition: int, values: list[int], trials: int) -> Iterator[bytes]:
    stage = Stream(services, partition)
    store = Memory(REAL)
    position = stage.restore(store, None, 0)  # type: ignore[arg-type]
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


@contextmanager
def planted(defect: str) -> Iterator[None]:
    """The mechanism with one fault."""
    draw = Hierarchy.draw

    def known_leaves(tree: Hierarchy, *given: Any) -> list[Ints]:
        raw = draw(tree, *given)
        return [np.zeros_like(raw[0]), *raw[1:]]

    def one_layers(
        tree: Hierarchy, noise: AddressedNoise, streams: Sequence[bytes], number: int, theta: int, epsilon: float
    ) -> list[Ints]:
        return draw(tree, noise, streams, number, theta, epsilon * tree.layers)

    through = TopsTable._pass

    def following(table: TopsTable, rows: Ints, begins: Ints, ends: Ints, at: Ints, ordered: Ints, *given: Any) -> Any:
        for row, begin, end in zip(rows.tolist(), begins[at].tolist(), ends[at].tolist(), strict=True):
            if ordered[begin:end].max() > table.hot[row, 1]:
                table.hot[row, 1] = BOUND
        return through(table, rows, begins, ends, at, ordered, *given)

    with ExitStack() as stack:
        if defect == "threshold noise reused":
            # In front of the id stands the partition.
            stack.enter_context(
                patch("susurrus.mechanisms.stream.threshold.address", lambda stream: address(stream[4:]))
            )
        if defect == "tree noise reused":
            stack.enter_context(
                patch(
                    "susurrus.mechanisms.stream.hierarchy.address",
                    lambda stream, tree, layer: address(stream, 0, layer),
                )
            )
        if defect == "leaves without noise":
            stack.enter_context(patch.object(Hierarchy, "draw", known_leaves))
        if defect == "layer at full epsilon":
            stack.enter_context(patch.object(Hierarchy, "draw", one_layers))
        if defect == "count not charged":
            stack.enter_context(patch.object(Hierarchy, "reduced", lambda tree, share: tree))
        if defect == "theta follows within a tree":
            stack.enter_context(patch.object(TopsTable, "_pass", following))
        yield


def _settings(method: str) -> Settings:
    return settings_from(
        {
            "pipeline": {"name": "audit", "kind": "stream"},
            "kafka": {"bootstrap_servers": "none:1"},
            "input": {"topic": "raw"},
            "start": {"from": "earliest"},
            "stream": {
                "method": method,
                "stream": "meter",
                "value": "reading",
                "bound": BOUND,
                "grid": 1,
                "epsilon": EPSILON,
                "holdout": HOLDOUT,
                "range_limit": TREE**2,
                "fanout": TREE,
                "smoothing": 0,
            },
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
