"""From a [stream] section to the mechanism of its streams and what it promises."""

from dataclasses import dataclass

from susurrus.agents.stream.sections import StreamSection
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.stream.growth import Growth
from susurrus.mechanisms.stream.pak import Pak
from susurrus.mechanisms.stream.smoothers import Smoother
from susurrus.mechanisms.stream.table import PakTable, Table, TopsTable
from susurrus.mechanisms.stream.tops import LOWER_SHARE, Tops
from susurrus.topics.records.numbers import steps_within

GRID_STEPS = 4096
"""Default grid: the bound in this many steps."""
_PAK_DELTA = 2.0**-20


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPromise:
    """Event level: what one event costs.  It must not be added to, or compared with, a promise per user and window."""

    epsilon: float
    delta: float

    def sentence(self) -> str:
        """Return the promise in one sentence."""
        delta = f", delta = {self.delta:.2g}" if self.delta else ""
        return (
            f"A reader of everything published learns almost nothing about the value of any one event: replacing it changes "
            f"the odds of any conclusion by at most a factor of e^{self.epsilon:g}{delta}.  That an event took place, and when, "
            "is not hidden. What many events of one person have in common is not hidden either."
        )


def grid_of(stream: StreamSection) -> float:
    """Return the width of one step of the values."""
    return stream.grid if stream.grid is not None else stream.bound / GRID_STEPS


def steps_of(stream: StreamSection) -> int:
    """Return the bound in steps.  Raises ConfigurationError for a grid that does not fit the bound."""
    steps = steps_within(stream.bound, grid_of(stream))
    if not 1 <= steps < 2**31:
        raise ConfigurationError(
            f"stream.grid={stream.grid} stream.bound={stream.bound}: the bound must be 1 to 2^31 steps of the grid; change the grid"
        )
    return steps


def mechanism_of(stream: StreamSection) -> Tops | Pak:
    """Return the mechanism.  Raises ConfigurationError."""
    steps = steps_of(stream)
    if stream.method == "pak":
        if stream.horizon is None:
            raise ConfigurationError(
                "stream.horizon: pak needs the planned number of values per stream; add it, for example horizon = 1000000"
            )
        # This brings SciPy's distributions: half a second, and ToPS has no use for them.
        from susurrus.mechanisms.stream.pak_parameters import build

        return build(
            bound=steps,
            epsilon=stream.epsilon,
            delta=promise_of(stream).delta,
            holdout=stream.holdout,
            horizon=stream.horizon,
            tail_start=stream.tail_start,
        )
    return Tops.of(
        bound=steps,
        epsilon=stream.epsilon,
        holdout=stream.holdout,
        range_limit=stream.range_limit,
        fanout=stream.fanout,
        smoothing=stream.smoothing,
        smoother=Smoother(stream.smoother),
        adaptive=stream.method == "tops",
        growth=Growth() if stream.growth else Growth(share=0.0),
        lower_share=None if stream.lower_clip is None else LOWER_SHARE * stream.lower_clip,
    )


def table_of(mechanism: Tops | Pak) -> Table:
    """Return an empty table of streams."""
    return PakTable(mechanism) if isinstance(mechanism, Pak) else TopsTable(mechanism)


def promise_of(stream: StreamSection) -> EventPromise:
    """Return what one event costs: pure epsilon for ToPS, (epsilon, delta) for PAK."""
    delta = 0.0 if stream.method != "pak" else _PAK_DELTA if stream.delta is None else stream.delta
    return EventPromise(epsilon=stream.epsilon, delta=delta)
