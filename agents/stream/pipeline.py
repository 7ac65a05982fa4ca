"""The kind `stream`: private real-valued streams. One stage, from the raw values to the private stream."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from susurrus.agents.config import meaning
from susurrus.agents.config.questions import FileQuestion
from susurrus.agents.display.board import Board
from susurrus.agents.display.view import View, Wanted
from susurrus.agents.finding import Finding
from susurrus.agents.kafka.clients import Clients
from susurrus.agents.runtime.decisions import Decisions
from susurrus.agents.runtime.expected_errors import ExpectedErrors
from susurrus.agents.runtime.facts import Facts, Outcome
from susurrus.agents.runtime.pipeline import Pipeline, StageSpec, no_windows
from susurrus.agents.runtime.rows import ReleaseSource, Start
from susurrus.agents.stream.board import StreamsBoard
from susurrus.agents.stream.expected_errors import expected_errors
from susurrus.agents.stream.explanation import findings
from susurrus.agents.stream.mechanism import promise_of
from susurrus.agents.stream.releases import stream_releases
from susurrus.agents.stream.settings import StreamSettings
from susurrus.agents.stream.view import COLUMNS, StreamView
from susurrus.mechanisms.calendar import WindowStart
from susurrus.topics import receipt
from susurrus.topics.records.fields import Path, parse_paths
from susurrus.topics.spec import PRIVATE_STREAM


class StreamPipeline(Pipeline[StreamSettings]):
    """The methods share the stage and differ in its mechanism."""

    description = "Private real-valued streams (ToPS, PAK)."
    settings_class = StreamSettings
    output = PRIVATE_STREAM
    outcomes = (
        Outcome("read", {"stream": ("in",)}),
        Outcome("kept", {"stream": ("in", "-dead_letter", "-filtered")}),
        Outcome("filtered", {"stream": ("filtered",)}),
        Outcome("dead letters", {"stream": ("dead_letter",)}),
    )
    released = (("stream", "streams"), ("stream", "rows"))
    questions = (
        FileQuestion(
            path="stream.value",
            text="Field with the value",
            comment="the number whose sums are released",
            field=True,
            of_type="number",
        ),
        FileQuestion(
            path="stream.stream",
            text="Field that names the stream (empty: the record's key does)",
            comment="each stream is released by itself",
            optional=True,
            field=True,
        ),
        FileQuestion(
            path="stream.bound",
            text="Largest value. Values are clamped to it; choose it without looking at the data",
            comment="values are clamped to it; choose it without looking at the data",
            number=True,
        ),
        FileQuestion(
            path="stream.epsilon",
            text="Epsilon, the privacy loss per value",
            comment="per value",
            default="1.0",
            number=True,
        ),
    )

    @property
    def stages(self) -> tuple[StageSpec, ...]:
        """One, on every raw partition."""
        # Who reads results, or asks what a pipeline promises, loads no stage.
        from susurrus.agents.stream.stage import StreamStage

        return (StageSpec("stream", self.settings.input.topic, "stream-changelog", StreamStage, purge=False),)

    @property
    def fields(self) -> Sequence[Path]:
        """The fields of the stream's name and of its values."""
        stream = self.settings.stream
        return parse_paths([stream.value] if stream.stream is None else [stream.stream, stream.value])

    def published_before(self, clients: Clients) -> str:
        """Whether the output holds anything. The embedded broker keeps nothing from an earlier life."""
        topic = self.settings.topic(self.output.name)
        if clients.embedded or not any(clients.watermarks(topic, p)[1] for p in range(clients.partitions(topic))):
            return ""
        return f"topic={topic} has been written"

    def guarantee(self) -> str:
        """Per event."""
        return promise_of(self.settings.stream).sentence()

    def promise_findings(self, users: int | None = None) -> list[Finding]:
        """Warns of epsilon and delta, and of what the values of one person cost together."""
        promise = promise_of(self.settings.stream)
        return [
            *meaning.of_epsilon("stream.epsilon", promise.epsilon),
            *meaning.of_delta("stream.delta", promise.delta, users),
            *meaning.of_units("stream", "value", promise.epsilon),
        ]

    def expected_errors(self) -> ExpectedErrors:
        """See expected_errors.py."""
        return expected_errors(self.settings.stream)

    def receipt(self) -> receipt.Receipt:
        """Per event."""
        promise = promise_of(self.settings.stream)
        return receipt.Receipt(
            epsilon=promise.epsilon,
            delta=promise.delta,
            unit="event",
            neighbours="replace the value",
            strategy=self.settings.stream.method,
            digest=self.settings.config_digest().hex(),
            schema=receipt.VERSION,
        )

    def decisions(self, clients: Clients) -> Decisions:
        """See decisions.py."""
        from susurrus.agents.stream.decisions import StreamDecisions  # only who tries records needs it

        return StreamDecisions(self.settings)

    def view(self, wanted: Wanted) -> Callable[[], View]:
        """See view.py."""
        wanted.check(self.settings.kind, COLUMNS, "stream")
        return partial(StreamView, self.settings, stream=wanted.stream, column=wanted.column, all_rows=wanted.all_rows)

    def board(self, *, windows: int, curve_bytes: int) -> Board:
        """See board.py."""
        return StreamsBoard(self.settings, self.guarantee())

    def releases(
        self, *, start: Start, window: WindowStart | None, final: bool, rolling: bool = False
    ) -> ReleaseSource:
        """The rows of all streams."""
        no_windows(self.settings.kind, window, final, rolling)
        return stream_releases(self.settings, start)

    def explain(self, facts: Facts) -> Iterator[Finding]:
        """See explanation.py."""
        return findings(self.settings.stream, facts)
