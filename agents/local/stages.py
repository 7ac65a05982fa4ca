"""The stages of a local pipeline, for agents/app.py.

client ──▶ reports ──collect──▶ report-totals ──server──▶ threshold, estimate        threshold ──▶ client
"""

from susurrus.agents.local.collect import Collect
from susurrus.agents.local.server import Server
from susurrus.agents.settings import Settings
from susurrus.agents.supervisor import StageSpec


def local_stages(settings: Settings) -> list[StageSpec]:
    """collect on every partition of reports, server on the one partition of report-totals."""
    return [
        StageSpec("collect", settings.topic("reports"), "collect-changelog", Collect, purge=False),
        StageSpec("server", settings.topic("report-totals"), "server-changelog", Server, purge=True),
    ]
