"""Why private streams are empty or thin: each needs a holdout of its own values first."""

from collections.abc import Iterator

from susurrus.agents.finding import Finding
from susurrus.agents.runtime.facts import Facts, records
from susurrus.agents.stream.sections import StreamSection


def findings(section: StreamSection, facts: Facts) -> Iterator[Finding]:
    """What keeps streams empty, in any order. The numbers are exact, so they are for operators only."""
    for partition, reason in facts.held.get("stream", {}).items():
        yield Finding(
            subject="partition",
            level="warning",
            text=f"The streams of stream {partition} are not released.",
            number=None,
            share=facts.share(facts.unread or 0),
            why=f"{reason}.",
            action="bring that partition back, as the message about it says; nothing is lost meanwhile",
        )
    kept, streams = facts.known("stream", "in", "-dead_letter"), facts.known("stream", "streams")
    if streams and facts.nothing_published:
        yield Finding(
            subject="holdout",
            level="warning",
            waits=True,
            text=f"No stream has had its holdout: {records(kept)} in {streams:,} stream{'' if streams == 1 else 's'} have come, "
            f"{kept / streams:,.0f} for each on average.",
            number=kept,
            share=facts.share(kept),
            why=f"The first {section.holdout:,} values (stream.holdout) of a stream are read for its threshold, and not released.",
            action="wait; or set a smaller stream.holdout, or values of fewer streams (stream.stream), in a pipeline of a new name",
        )
