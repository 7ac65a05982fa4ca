"""The stages of a local pipeline, for agents/runtime/worker.py.

client ──▶ reports ──collect──▶ report-totals ──server──▶ threshold, estimate        threshold ──▶ client
"""

from susurrus.agents.config.settings import Settings
from susurrus.agents.local.collect import Collect
from susurrus.agents.local.server import Server
from susurrus.agents.runtime.supervisor import StageSpec


def local_stages(settings: Settings) -> list[StageSpec]:
    """collect on every partition of reports, server on the one partition of report-totals."""
    return [
        StageSpec("collect", settings.topic("reports"), "collect-changelog", Collect, purge=False),
        StageSpec("server", settings.topic("report-totals"), "server-changelog", Server, purge=True),
    ]
