"""What collect and server share: intervals, the Square Wave of phase 1, thresholds read back from their topic."""

from dataclasses import dataclass

from susurrus.agents.local.settings import LocalSection
from susurrus.agents.runtime.services import Services
from susurrus.mechanisms.calendar import Interval
from susurrus.mechanisms.errors import Refusal
from susurrus.mechanisms.local.hybrid import Hybrid
from susurrus.mechanisms.local.wave import SquareWave
from susurrus.topics import threshold as threshold_codec
from susurrus.topics.packing import MalformedRecord
from susurrus.topics.threshold import Threshold


def wave_of(local: LocalSection) -> SquareWave:
    """The clients' phase 1 randomiser."""
    return SquareWave(local.epsilon, local.bound, local.scale)


@dataclass(frozen=True, slots=True)
class Intervals:
    """Public time intervals of `length` ms since the Unix epoch."""

    length: int

    def at(self, moment: int) -> Interval:
        """The interval of a moment in ms."""
        return Interval(moment // self.length)

    def start(self, interval: Interval) -> int:
        """Its first ms."""
        return interval * self.length

    def end(self, interval: Interval) -> int:
        """The first ms after it."""
        return self.start(interval) + self.length


class Thresholds:
    """The thresholds that were published, by version; read from their topic whenever a report names an unknown one."""

    def __init__(self, services: Services) -> None:
        self._clients = services.clients
        self._topic = services.topic("threshold")
        self._next = 0
        self._known: dict[int, tuple[Threshold, Hybrid]] = {}

    @property
    def latest(self) -> int:
        """Number of the newest version known; 0 before there is one."""
        return max(self._known, default=0)

    def get(self, version: int) -> tuple[Threshold, Hybrid] | None:
        """A threshold and its perturber."""
        return self._known.get(version)

    def refresh(self) -> None:
        """Read what is new. A client can only name what was committed, so one look decides whether a version exists."""
        for _, value, offset in self._clients.read(self._topic, self._next, group="threshold", complete=False):
            self._next = offset + 1
            try:
                threshold = threshold_codec.decode(value or b"")
            except MalformedRecord as error:
                raise Refusal(
                    f"topic={self._topic} offset={offset}: {error}; find out who else writes to it"
                ) from error
            self._known[threshold.version] = (threshold, Hybrid(threshold.epsilon, threshold.alpha))
