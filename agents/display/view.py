"""What a view of `susurrus watch` is: it follows public topics of one pipeline, draws what is new, and says what comes next."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, Self

from confluent_kafka import TopicPartition
from rich.console import RenderableType
from rich.text import Text

from susurrus.agents.config.settings import Settings
from susurrus.agents.display.drawing import margin
from susurrus.agents.frames import number
from susurrus.agents.kafka.clients_of import clients_of
from susurrus.agents.kafka.follow import Follower
from susurrus.agents.types.one_of import use_one_of
from susurrus.mechanisms.calendar import WindowStart
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics.histogram import Measured

Record = dict[str, Any]
"""A flat record: names of columns to numbers, texts or None."""
_MOST_ROWS: Final = 10
_CHART: Final = 10
"""The lines of a chart's points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be shown, as the options of `susurrus watch` say. window: its start in ms. rolling: the rolling view instead of
    windows. all_rows: for an export. top: only the ranking. number: another one of each row than by default."""

    window: WindowStart | None = None
    stream: str | None = None
    column: str | None = None
    rolling: bool = False
    level: str | None = None
    all_rows: bool = False
    top: bool = False
    number: Literal["estimate", "direct"] | None = None

    def check(self, kind: str, columns: Iterable[str], *has: str) -> None:
        """Raises ConfigurationError for an option that the kind does not have, and for a column that there is not."""
        for option in ("window", "stream", "level"):
            if getattr(self, option) is not None and option not in has:
                raise ConfigurationError(f'--{option}: pipeline.kind="{kind}" has no {option}s; leave it out')
        if self.top and "top" not in has:
            raise ConfigurationError(
                f'--top: pipeline.kind="{kind}" has no ranking here; leave it out, or give a histogram a section [top]'
            )
        if self.number is not None and "number" not in has:
            raise ConfigurationError(f'--number: rows of pipeline.kind="{kind}" have one number each; leave it out')
        if self.rolling and "rolling view" not in has:
            raise ConfigurationError(f'--rolling: pipeline.kind="{kind}" has no rolling view; leave it out')
        known = dict.fromkeys(columns)
        if self.column is not None and self.column not in known:
            raise ConfigurationError(f'--column="{self.column}": there is no such column; {use_one_of(known)}')


class View(ABC):
    """What `susurrus watch` shows of one pipeline. Use it as a context manager, in one thread."""

    instants: ClassVar[tuple[str, ...]] = ()
    """The columns of `records` that are instants, as RFC 3339 texts."""

    @abstractmethod
    def poll(self, seconds: float) -> None:
        """Take in what arrives within so many seconds. Raises KafkaException for fatal errors."""

    @property
    @abstractmethod
    def caught_up(self) -> bool:
        """Whether everything that was there has been read once."""

    @property
    @abstractmethod
    def progress(self) -> tuple[int, int]:
        """How much was read, and of how much that was there at the beginning; 0 while that is unknown."""

    @property
    @abstractmethod
    def newest(self) -> object:
        """What can be shown; None while there is nothing. It differs from what it was whenever the picture does."""

    @property
    def over(self) -> bool:
        """Whether nothing more can come."""
        return False

    @abstractmethod
    def picture(self, width: int, height: int | None) -> RenderableType:
        """What is new, for a terminal of this size. height: None for as much as there is. Only where there is a newest."""

    @abstractmethod
    def due(self, now: int) -> str:
        """What comes next, and when; before anything is released, what is waited for. now: ms since 1970."""

    @abstractmethod
    def records(self) -> list[Record]:
        """Returns what an export writes: flat records with the same names in the same order."""

    @abstractmethod
    def close(self) -> None:
        """Leave the brokers."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RowsView(View):
    """A view of public topics whose rows are complete one by one. It reads them from their beginning on, without a group.

    Raises ConfigurationError where a topic does not exist.
    """

    def __init__(self, settings: Settings, *topics: str) -> None:
        self._clients = clients_of(settings, quiet=True)
        try:
            places = [(topic, n) for topic in topics for n in range(self._clients.partitions_to_read(topic))]
            parts = [TopicPartition(*place) for place in places]
            self._there = sum(self._clients.ends(parts).values()) - sum(self._clients.starts(parts).values())
        except BaseException:
            self._clients.close()
            raise
        self._consumer = self._clients.reader("watch", lost="earliest")
        self._count = 0
        self._follower = Follower(self._consumer, dict.fromkeys(places, 0))

    @property
    def caught_up(self) -> bool:
        """See `View.caught_up`."""
        return self._follower.caught_up

    @property
    def progress(self) -> tuple[int, int]:
        """See `View.progress`; what there was is in offsets, of which transactions take some."""
        return self._count, self._there

    def read(self, seconds: float) -> list[tuple[str, int, bytes | None, bytes]]:
        """(topic, partition, key, value) of the records that arrive within so many seconds; no tombstones."""
        found = []
        for message in self._follower.read(seconds):
            self._count += 1
            key: Any = message.key()
            value: Any = message.value()
            if value is not None:
                found.append((str(message.topic()), int(message.partition() or 0), key, bytes(value)))
        return found

    def close(self) -> None:
        """See `View.close`."""
        self._consumer.close()
        self._clients.close()


def heights(height: int | None) -> tuple[int, int]:
    """How many lines of the terminal a chart gets, 0 where there is no room for one, and how many rows the table below it has.

    height: lines of the terminal, None for as many as are needed.
    """
    there = _MOST_ROWS + _CHART + 9 if height is None else height
    chart = _CHART if there >= _CHART + 12 else 0
    return chart, max(3, min(_MOST_ROWS, there - (chart + 6 if chart else 0) - 4))


def pair(name: str, measured: Measured | None) -> Record:
    """The two columns of an estimate in a record."""
    return {
        name: None if measured is None else measured.estimate,
        f"{name}_std_error": None if measured is None else measured.std_error,
    }


def cells(measured: Measured | None) -> tuple[str, str]:
    """The two cells of an estimate in a table: the number, and the half-width of its 95 % error bar."""
    return ("-", "") if measured is None else (number(measured.estimate), margin(measured))


def headed(name: str, topic: str, width: int) -> Text:
    """The first line of a picture."""
    title = Text.assemble((name, "bold"), f"  {topic}")
    title.truncate(width, overflow="ellipsis")
    return title


def scaled(measured: Measured, by: float) -> Measured:
    """An estimate divided by a public number."""
    return Measured(measured.estimate / by, measured.std_error / by)
