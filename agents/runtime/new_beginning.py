"""What a kind whose windows are charged knows of a new epoch (agents/operations/new_epoch.py)."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Literal

from susurrus.agents.kafka.clients import Clients
from susurrus.agents.runtime.initial_offsets import Origin
from susurrus.mechanisms.guarantee import Guarantee
from susurrus.topics.progress import Progress

FirstWindow = Literal["next", "current"] | int
"""An epoch's first window: "next" is the one after everything that was published, "current" the one of the present time, and
an int the one that starts at this instant, in ms."""


class NewBeginning(ABC):
    """Where a new epoch may begin, and what its windows cost."""

    guarantee: Guarantee
    """What a window costs its users."""

    @abstractmethod
    def announced(self, clients: Clients) -> Iterator[Progress]:
        """Every trigger that was ever announced, of every epoch. Raises Refusal for a record that no worker wrote."""

    @abstractmethod
    def at(self, now: int, newest: int | None) -> tuple[int, Origin]:
        """The start of the first window in ms, and the first record. newest: the last window of which anything was published.

        Raises ConfigurationError where there is no such window.
        """
