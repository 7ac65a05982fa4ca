"""What a kind of pipeline is: its configuration, its stages, what they share, and what it promises.

One folder holds each kind (agents/{histogram,stream,local}/), and agents/pipelines.py lists them. The worker and the commands ask
a Pipeline and never which kind it is.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from confluent_kafka.admin import AdminClient
from typing_extensions import TypeVar

from susurrus.agents.config.questions import FileQuestion
from susurrus.agents.config.settings import Settings
from susurrus.agents.display.board import Board
from susurrus.agents.display.view import View, Wanted
from susurrus.agents.finding import Finding, refuse
from susurrus.agents.formats import decoder_of
from susurrus.agents.formats.outputs import OUTPUT_FORMATS, writers_of
from susurrus.agents.formats.reading import fields_of_values
from susurrus.agents.kafka.clients import Clients
from susurrus.agents.kafka.clients_of import clients_of
from susurrus.agents.kafka.topics import check_topics
from susurrus.agents.runtime.decisions import Decisions
from susurrus.agents.runtime.expected_errors import ExpectedErrors
from susurrus.agents.runtime.facts import Facts, NewestRelease, Outcome
from susurrus.agents.runtime.initial_offsets import Origin
from susurrus.agents.runtime.ledger import Ledger
from susurrus.agents.runtime.new_beginning import FirstWindow, NewBeginning
from susurrus.agents.runtime.publisher import Publisher
from susurrus.agents.runtime.rows import ReleaseSource, Start
from susurrus.agents.runtime.services import Services
from susurrus.mechanisms.calendar import WindowStart
from susurrus.mechanisms.errors import ConfigurationError, Refusal
from susurrus.mechanisms.guarantee import Guarantee
from susurrus.topics.receipt import Receipt
from susurrus.topics.records.fields import Path
from susurrus.topics.spec import TopicSpec

if TYPE_CHECKING:  # who reads results, or asks what a pipeline promises, loads no stage
    from susurrus.agents.runtime.stage import Stage


def no_windows(kind: str, window: WindowStart | None, final: bool, rolling: bool) -> None:
    """Raises ConfigurationError where a window, final releases or a rolling view are asked of a kind that has none."""
    if window is not None or final or rolling:
        raise ConfigurationError(f'pipeline.kind="{kind}": has no windows', "leave out window, final and rolling")


S = TypeVar("S", bound=Settings, default=Settings)


@dataclass(frozen=True, slots=True)
class StageSpec:
    """One stage and what it reads. ``purge``: the topic is ours and may be deleted below the committed position."""

    name: str
    input_topic: str | None
    """Full name; None for the raw topics together, whose partitions the ledger numbers (topics/sources.py)."""
    changelog: str
    stage: "type[Stage]"
    """The class, whose objects are made from the services of its own kind of pipeline."""
    purge: bool

    def inputs(self, raw_topics: Sequence[str]) -> tuple[str, ...]:
        """The topics that it reads. raw_topics: of the pipeline, as they are known now."""
        return tuple(raw_topics) if self.input_topic is None else (self.input_topic,)


class Pipeline(ABC, Generic[S]):
    """One pipeline with its configuration."""

    description: ClassVar[str]
    """One line for the page of all settings."""
    settings_class: ClassVar[type[Settings]]
    output: ClassVar[TopicSpec]
    """The topic with what the pipeline publishes."""
    way_out: ClassVar[str] = "give the pipeline a new name to start over"
    """What an operator can do after internal topics were lost or restored from an older copy."""

    outcomes: ClassVar[tuple[Outcome, ...]] = ()
    """What can become of a record of the input. The first is that it is read. The others are disjoint, and what is missing to the
    first waits for its trigger."""
    released: ClassVar[tuple[tuple[str, str], ...]] = ()
    """(stage, total) of what is published. The last one counts rows."""

    questions: ClassVar[tuple[FileQuestion, ...]] = ()
    """What `susurrus config init` asks for the kind's own sections; the default kind has a file of its own (agents/cli/init.py)."""

    def __init__(self, settings: S) -> None:
        self.settings = settings

    # ---- for the worker ----------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def stages(self) -> tuple[StageSpec, ...]:
        """The stages in the order of the flow."""

    @property
    def initializer(self) -> tuple[str, int]:
        """(stage, partition) of the task that writes a new pipeline's first records to the ledger."""
        return self.stages[0].name, 0

    def digest(self) -> bytes:
        """32 bytes that change with everything that changes what is published.

        Raises ConfigurationError where the mechanism refuses its numbers.
        """
        return self.settings.config_digest()

    def services(self) -> Services[S]:
        """What the tasks share. Raises ConfigurationError, also where a noise secret is needed and there is none."""
        settings = self.settings
        for written in settings.input.each_format.values():
            decoder_of(written, ()).close()  # a missing package is reported here, not by every task
        refuse(one for one in self.format_findings() if one.level == "failure")
        digest, secret = self.digest(), settings.secret()
        clients = clients_of(settings)
        ledger = Ledger(
            settings,
            clients,
            settings.calendar,
            config_digest=digest,
            secret=secret,
            initializer=self.initializer,
            way_out=self.way_out,
            published_before=partial(self.published_before, clients),
        )
        return Services(settings, clients, ledger, settings.calendar, digest, secret)

    def publisher(self) -> Publisher:
        """What writes the rows, once it is open. Raises ConfigurationError where a package is missing."""
        settings = self.settings
        OUTPUT_FORMATS[settings.output.format].require()
        return Publisher(lambda: writers_of(settings.output, settings.schemas, settings.namespace), self.receipt())

    def published_before(self, clients: Clients) -> str:
        """What shows, beside the ledger, that this pipeline has published something; the empty text if nothing does."""
        return ""

    # ---- for the commands --------------------------------------------------------------------------------------------

    @abstractmethod
    def guarantee(self) -> str:
        """The promise in a sentence. Raises ConfigurationError where the mechanism refuses its numbers."""

    @abstractmethod
    def receipt(self) -> Receipt:
        """What every published row carries. Raises ConfigurationError as `guarantee`."""

    def per_window(self) -> Guarantee | None:
        """What a window costs its users, as it is charged to the raw topic; None where the promise is not about windows.

        Raises ConfigurationError as `guarantee`.
        """
        return None

    def promise_findings(self, users: int | None = None) -> list[Finding]:
        """What the promise means that a reader may not expect (agents/config/meaning.py): warnings.

        users: how many there are, from public knowledge and never from the data. Raises ConfigurationError as `guarantee`.
        """
        return []

    def expected_errors(self) -> ExpectedErrors | None:
        """Standard errors before anything runs; None where the mechanism has no formula for them. Raises ConfigurationError as
        `guarantee`."""
        return None

    def summary(self) -> Iterator[tuple[str, str]]:
        """(name, text) of what `susurrus config check` shows beyond what every kind has, such as what the promise costs."""
        return iter(())

    @property
    def fields(self) -> Sequence[Path]:
        """The fields that are read of raw records, as far as every record's type must have them."""
        return ()

    def format_findings(self) -> Iterator[Finding]:
        """What keeps the formats from being read and written. A failure: a field that no record can have, by the class of the
        records. Unknown: what this machine lacks, such as an optional package, and workers may have."""
        for path, written in self.settings.input.each_format.items():
            try:
                with closing(decoder_of(written, ())) as form:
                    yield from list(form.unknown_fields(fields_of_values(written, self.fields)))
            except ConfigurationError as error:
                yield Finding("packages", "unknown", f"{path}: {error.text}", error.action)
        try:
            OUTPUT_FORMATS[self.settings.output.format].require()
        except ConfigurationError as error:
            yield Finding("packages", "unknown", f"output: {error.text}", error.action)

    def decisions(self, clients: Clients) -> Decisions | None:
        """What decides raw records without a worker (decisions.py); None for a kind whose records cannot be tried. clients: for
        what the pipeline's own topics decide."""
        return None

    def progress(self, first_window: int | None, charged: int, charged_all: int) -> str:
        """What `susurrus status` says after the epoch. first_window: its start in ms; charged, charged_all: windows charged by
        this pipeline, and by all on its raw topic."""
        return ""

    def explain(self, facts: Facts) -> Iterator[Finding]:
        """What keeps this kind's result empty or thin; agents/operations/explanation.py adds what all kinds share."""
        return iter(())

    def start_over(self, facts: Facts) -> tuple[str, ...]:
        """The lines of TOML with which a new pipeline reads what this one's start has left out."""
        return ("[pipeline]", f'name = "{self.settings.pipeline.name}-2"', "[start]", 'from = "earliest"')

    def new_beginning(self, first_window: FirstWindow, origin: Origin | None) -> NewBeginning:
        """Where a new epoch begins. Raises Refusal for a kind without windows that are charged."""
        raise Refusal(
            f'pipeline.kind="{self.settings.kind}": its promise is not about windows, so there are no epochs that '
            "are charged",
            self.way_out,
        )

    def newest_release(self, clients: Clients, epoch: str) -> NewestRelease | None:
        """The newest release of an epoch, where the kind announces its releases in a public topic."""
        return None

    def memory(self, newest: NewestRelease | None) -> Mapping[str, Any] | None:
        """What the newest release's window has from windows before it, by name; None for a kind or pipeline without that."""
        return None

    def memory_sentences(self, newest: NewestRelease | None) -> Sequence[str]:
        """The same in words, and what keeps it from doing anything just now; none where there is nothing to say."""
        return ()

    def check_topics(
        self, admin: AdminClient, raw_topics: Sequence[str] | None = None, raw_admin: AdminClient | None = None
    ) -> list[Finding]:
        """What was found of each topic. raw_topics: by default those that the settings name. raw_admin: of their cluster; by
        default it is the same."""
        return check_topics(self.settings, admin, raw_topics, raw_admin)

    def view(self, wanted: Wanted) -> Callable[[], View]:
        """What `susurrus watch` shows, as soon as it is called. The call raises ConfigurationError where a topic is missing.

        Raises ConfigurationError for options that the kind does not have, and where it has no view.
        """
        raise ConfigurationError(
            f'pipeline.kind="{self.settings.kind}": watch does not know this kind',
            "read the topics of the pipeline instead",
        )

    def board(self, *, windows: int, curve_bytes: int) -> Board:
        """What a dashboard shows. windows: how many of the newest are kept. curve_bytes: the most memory of their curves.

        Raises ConfigurationError as `guarantee`, and where the kind has no board.
        """
        raise ConfigurationError(
            f'pipeline.kind="{self.settings.kind}": has no dashboard', "read the topics of the pipeline instead"
        )

    def releases(
        self, *, start: Start, window: WindowStart | None, final: bool, rolling: bool = False
    ) -> ReleaseSource:
        """What is published, release by release: agents/releases/. window, final, rolling: as `releases` there.

        Raises ConfigurationError where a topic is missing, the kind has no windows, or no reader of its own.
        """
        raise ConfigurationError(
            f'pipeline.kind="{self.settings.kind}": has no reader',
            f"read topic={self.settings.topic(self.output.name)} instead",
        )
