"""The kind `stream`: private real-valued streams. One stage, from the raw values to the private stream."""

from collections.abc import Iterator

from susurrus.agents.kafka.clients import Clients
from susurrus.agents.runtime.facts import Facts, Finding, Outcome
from susurrus.agents.runtime.pipeline import Pipeline, StageSpec
from susurrus.agents.stream.explanation import findings
from susurrus.agents.stream.mechanism import promise_of
from susurrus.agents.stream.settings import StreamSettings
from susurrus.agents.stream.stage import Stream as Stage
from susurrus.topics import receipt
from susurrus.topics.spec import PRIVATE_STREAM


class Stream(Pipeline[StreamSettings]):
    """The methods share the stage and differ in its mechanism."""

    description = "Private real-valued streams (ToPS, PAK)."
    settings_class = StreamSettings
    output = PRIVATE_STREAM
    outcomes = (
        Outcome("read", {"stream": ("in",)}),
        Outcome("kept", {"stream": ("in", "-dead_letter")}),
        Outcome("dead letters", {"stream": ("dead_letter",)}),
    )
    released = (("stream", "streams"), ("stream", "rows"))

    @property
    def stages(self) -> tuple[StageSpec, ...]:
        """One, on every raw partition."""
        return (StageSpec("stream", self.settings.input.topic, "stream-changelog", Stage, purge=False),)

    def published_before(self, clients: Clients) -> str:
        """Whether the output holds anything. The embedded broker keeps nothing from an earlier life."""
        topic = self.settings.topic(self.output.name)
        if clients.embedded or not any(clients.watermarks(topic, p)[1] for p in range(clients.partitions(topic))):
            return ""
        return f"topic={topic} has been written"

    def guarantee(self) -> str:
        """Per event."""
        return promise_of(self.settings.stream).sentence()

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

    def explain(self, facts: Facts) -> Iterator[Finding]:
        """explanation.py."""
        return findings(self.settings.stream, facts)
