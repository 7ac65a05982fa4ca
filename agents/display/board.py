"""What a dashboard shows of one kind of pipeline, and the errors that its questions may have.

feed.py calls `open`, `poll` and `close` in its thread, and `take`, `state` and `answer` while it holds its lock.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from susurrus.agents.config.settings import Settings
from susurrus.agents.formats.outputs import reader_of
from susurrus.agents.formats.outputs.format import Reader
from susurrus.agents.kafka.clients import Clients
from susurrus.agents.kafka.follow import Follower

Query = Mapping[str, str]


class BadQuestion(ValueError):
    """A question that has no answer; its text says why."""


class Board(ABC):
    """Reads one pipeline's public topics and answers the page's questions."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.opened = contextlib.ExitStack()
        """Closes what `open` has opened."""

    @abstractmethod
    def open(self, clients: Clients) -> None:
        """Begin to read, from the beginning. Raises ConfigurationError for a topic that does not exist, and KafkaException."""

    @property
    @abstractmethod
    def caught_up(self) -> bool:
        """Whether everything that was there has been read once."""

    @abstractmethod
    def poll(self, seconds: float) -> Any:
        """Returns what arrives within so many seconds, for `take`; something false where nothing did. Raises KafkaException."""

    @abstractmethod
    def take(self, news: Any) -> bool:
        """Take in what `poll` has read; whether the page may show anything else than before."""

    def close(self) -> None:
        """Stop reading; what was read stays."""
        self.opened.close()

    @abstractmethod
    def state(self, now: int) -> dict[str, Any]:
        """What the page needs at every refresh. now: ms."""

    @abstractmethod
    def answer(self, question: str, query: Query) -> dict[str, Any]:
        """The answer to one question of the page. Raises BadQuestion."""

    def reader(self, name: str) -> Reader:
        """Returns what turns values of one of the pipeline's public topics into JSON."""
        topic = self.settings.topic(name)
        return reader_of(self.settings.output, self.settings.schemas[topic], self.settings.namespace)

    def follower(self, clients: Clients, name: str) -> Follower:
        """Follows all partitions of one of the pipeline's topics, from the beginning. Raises ConfigurationError without it."""
        topic = self.settings.topic(name)
        places = [(topic, partition) for partition in range(clients.partitions_to_read(topic))]
        consumer = clients.reader("dashboard", lost="earliest")
        self.opened.callback(consumer.close)
        return Follower(consumer, dict.fromkeys(places, 0))


def whole(query: Query, name: str, default: int | None, low: int = 0, high: int = 1 << 62) -> int | None:
    """A whole number of the question. Raises BadQuestion."""
    text = query.get(name)
    if text in (None, ""):
        return default
    try:
        number = int(text)
    except ValueError:
        raise BadQuestion(f"{name}: is no whole number") from None
    if not low <= number <= high:
        raise BadQuestion(f"{name}: must be {low} to {high}")
    return number


def exact(number: Any) -> int | float | str:
    """A number for JSON. Integers that a browser's numbers do not hold exactly go as text."""
    return str(number) if isinstance(number, int) and abs(number) > 2**53 else number
