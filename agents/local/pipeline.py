"""The kind `local`: local privacy. Clients perturb what they report.

client ──▶ reports ──collect──▶ report-totals ──server──▶ threshold, estimate        threshold ──▶ client
"""

from collections.abc import Callable, Iterator
from functools import partial

from susurrus.agents.config import meaning
from susurrus.agents.config.questions import FileQuestion
from susurrus.agents.display.board import Board
from susurrus.agents.display.view import View, Wanted
from susurrus.agents.finding import Finding
from susurrus.agents.kafka.clients import Clients
from susurrus.agents.local.board import EstimatesBoard
from susurrus.agents.local.expected_errors import expected_errors
from susurrus.agents.local.explanation import findings
from susurrus.agents.local.releases import local_releases
from susurrus.agents.local.settings import LocalSettings
from susurrus.agents.local.view import COLUMNS, LocalView
from susurrus.agents.runtime.decisions import Decisions
from susurrus.agents.runtime.expected_errors import ExpectedErrors
from susurrus.agents.runtime.facts import Facts, Outcome
from susurrus.agents.runtime.pipeline import Pipeline, StageSpec, no_windows
from susurrus.agents.runtime.rows import ReleaseSource, Start
from susurrus.mechanisms.calendar import WindowStart
from susurrus.topics import receipt
from susurrus.topics.spec import ESTIMATE


class LocalPipeline(Pipeline[LocalSettings]):
    """Sums of perturbed reports per time interval."""

    description = "Local privacy (ToPL)."
    settings_class = LocalSettings
    output = ESTIMATE
    outcomes = (
        Outcome("read", {"collect": ("in",)}),
        Outcome("kept", {"server": ("phase_1", "phase_2")}),
        Outcome("late", {"collect": ("late",)}),
        Outcome("expired", {"server": ("expired",)}),
        Outcome("dead letters", {"collect": ("dead_letter", "-late")}),
    )
    """Late reports are dead letters, too; here they are apart. Expired ones name a threshold that server has forgotten."""
    released = (("server", "thresholds"), ("server", "intervals"))
    questions = (
        FileQuestion(
            path="local.bound",
            text="Largest value. Devices clamp to it; choose it without looking at the data",
            comment="devices clamp values to it; choose it without looking at the data",
            number=True,
        ),
        FileQuestion(
            path="local.epsilon",
            text="Epsilon, the privacy loss per report",
            comment="per report; the devices have the same",
            default="1.0",
            number=True,
        ),
        FileQuestion(
            path="local.interval",
            text="Length of the intervals for which sums are published",
            comment="one sum for each",
            default="1m",
        ),
    )

    @property
    def stages(self) -> tuple[StageSpec, ...]:
        """collect on every partition of reports, server on the one partition of report-totals."""
        # Who reads results, or asks what a pipeline promises, loads no stage.
        from susurrus.agents.local.collect import CollectStage
        from susurrus.agents.local.server import ServerStage

        topic = self.settings.topic
        return (
            StageSpec("collect", topic("reports"), "collect-changelog", CollectStage, purge=False),
            StageSpec("server", topic("report-totals"), "server-changelog", ServerStage, purge=True),
        )

    def guarantee(self) -> str:
        """Per report."""
        return (
            f"Every report is {self.settings.local.epsilon:g}-locally private by itself, even against the server; a device that "
            "reports k times has spent k times that."
        )

    def promise_findings(self, users: int | None = None) -> list[Finding]:
        """Warns of epsilon, and of what the reports of one device cost together."""
        epsilon = self.settings.local.epsilon
        return [*meaning.of_epsilon("local.epsilon", epsilon), *meaning.of_units("local", "report", epsilon)]

    def expected_errors(self) -> ExpectedErrors:
        """See expected_errors.py."""
        return expected_errors(self.settings.local)

    def receipt(self) -> receipt.Receipt:
        """Per report."""
        return receipt.Receipt(
            epsilon=self.settings.local.epsilon,
            delta=0.0,
            unit="report",
            neighbours="replace the value",
            strategy="topl",
            digest=self.settings.config_digest().hex(),
            schema=receipt.VERSION,
        )

    def decisions(self, clients: Clients) -> Decisions:
        """See decisions.py."""
        from susurrus.agents.local.decisions import LocalDecisions  # only who tries records needs it

        return LocalDecisions(self.settings, clients)

    def view(self, wanted: Wanted) -> Callable[[], View]:
        """See view.py."""
        wanted.check(self.settings.kind, COLUMNS)
        return partial(LocalView, self.settings, column=wanted.column)

    def board(self, *, windows: int, curve_bytes: int) -> Board:
        """See board.py."""
        return EstimatesBoard(self.settings, self.guarantee())

    def releases(
        self, *, start: Start, window: WindowStart | None, final: bool, rolling: bool = False
    ) -> ReleaseSource:
        """The estimates of all intervals."""
        no_windows(self.settings.kind, window, final, rolling)
        return local_releases(self.settings, start)

    def explain(self, facts: Facts) -> Iterator[Finding]:
        """See explanation.py."""
        return findings(self.settings, facts)
