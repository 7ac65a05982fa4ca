"""Why estimates of local privacy are empty or thin: phase 1 comes first, and reports may be late or name a forgotten threshold."""

from collections.abc import Iterator

from susurrus.agents.finding import Finding
from susurrus.agents.local.settings import LocalSettings
from susurrus.agents.runtime.facts import WORTH_TELLING, Facts, records
from susurrus.agents.types.durations import format_duration


def findings(settings: LocalSettings, facts: Facts) -> Iterator[Finding]:
    """What keeps the estimates empty, in any order. The numbers are exact, so they are for operators only."""
    local, read = settings.local, facts.read.number or 0
    held = [f"{stage} {p}: {why}" for stage, found in facts.held.items() for p, why in found.items()]
    waits = facts.known("collect", "phase_1", "phase_2") - facts.known("server", "phase_1", "phase_2", "expired")
    if held:
        yield Finding(
            subject="missing-tick",
            level="warning",
            text=f"Estimates wait for {len(held)} partition{'' if len(held) == 1 else 's'}; {records(max(0, waits))} in none yet.",
            number=max(0, waits),
            share=facts.share(max(0, waits) + (facts.unread or 0)),
            why=f"{'; '.join(held)}. An estimate needs the word (the tick) of every partition that it has all reports.",
            action="bring that partition back, as the message about it says; nothing is lost meanwhile",
        )
    phase_1 = facts.known("server", "phase_1")
    if read and not facts.known("server", "thresholds"):
        yield Finding(
            subject="holdout",
            level="warning",
            waits=True,
            text=f"There is no threshold yet: {phase_1:,} of {local.holdout:,} reports of phase 1 have come.",
            number=phase_1,
            share=facts.share(phase_1),
            why=f"The first local.holdout = {local.holdout:,} reports decide on the threshold; estimates begin behind it.",
            action="wait; or set a smaller local.holdout in a pipeline of a new name",
        )
    elif read and facts.nothing_published and not facts.known("server", "phase_2"):
        yield Finding(
            subject="phase-2",
            level="warning",
            waits=True,
            text=f"No report of phase 2 has come, after {records(read)} read.",
            number=read,
            share=facts.share(read),
            why="Clients report phase 2 once they have read the threshold.",
            action="let the clients read the topic of thresholds (`susurrus acls --writer`), and start them again",
        )
    late, expired = facts.known("collect", "late"), facts.known("server", "expired")
    if facts.share(late) >= WORTH_TELLING:
        yield Finding(
            subject="late",
            level="warning",
            text=f"Too late for their interval: {facts.of_read(late)}.",
            number=late,
            share=facts.share(late),
            why=f"An interval is published local.lateness = {format_duration(local.lateness)} after its end.",
            action="let the clients send sooner, check their clocks, or set a longer local.lateness in a pipeline of a new name",
        )
    if facts.share(expired) >= WORTH_TELLING:
        yield Finding(
            subject="expired",
            level="warning",
            text=f"Under a threshold that is forgotten: {facts.of_read(expired)}.",
            number=expired,
            share=facts.share(expired),
            why="Reports count under the two newest thresholds.",
            action="let the clients read the topic of thresholds all the time, and send what they report at once",
        )
