"""A toy clock: broker stamps, and twice the grace. It plugs in by one line: ``CLOCKS[Doubtful.kind] = Doubtful``."""

from collections.abc import Iterator

from susurrus.agents.config.sections import ClockSettings, StartSettings
from susurrus.agents.histogram.clock import BrokerClock


class Doubtful(BrokerClock):
    """A source passes a boundary when a record stamped >= boundary + 2 * grace is read, or by the cut."""

    kind = "doubtful"
    meaning = "as `broker`, with twice the grace"

    @classmethod
    def problems(cls, clock: ClockSettings, start: StartSettings) -> Iterator[str]:
        """The cut must not come before the stamps."""
        yield from super().problems(clock, start)
        if 2 * clock.grace > clock.idle_grace:
            yield f'clock.grace: with clock.kind = "{cls.kind}" use at most half of clock.idle_grace'

    @property
    def margin(self) -> int:
        """Twice the grace."""
        return 2 * super().margin
