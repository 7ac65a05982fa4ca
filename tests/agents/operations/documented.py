"""The metrics that docs/monitoring.md lists; test_metrics.py compares them with those of a real worker."""

import re
from pathlib import Path

from susurrus.agents.histogram.bound import BoundStage
from susurrus.agents.histogram.rank import RankStage
from susurrus.agents.histogram.release import ReleaseStage
from susurrus.agents.histogram.route import RouteStage
from susurrus.agents.local.collect import CollectStage
from susurrus.agents.local.server import ServerStage
from susurrus.agents.runtime.stage import Stage
from susurrus.agents.stream.stage import StreamStage

DOCUMENT = Path(__file__).parents[3] / "docs" / "monitoring.md"
STAGES: tuple[type[Stage], ...] = (
    RouteStage,
    BoundStage,
    ReleaseStage,
    RankStage,
    StreamStage,
    CollectStage,
    ServerStage,
)

_ROW = re.compile(
    r"^\| `(susurrus_\w+)` \| (counter|gauge|histogram) \| [^|]+ \| ([^|]+) \| [^|]+ \| (yes|no) \|$", re.MULTILINE
)


def metrics() -> dict[str, tuple[str, set[str]]]:
    """Name -> (type, labels)."""
    rows = _ROW.findall(DOCUMENT.read_text())
    return {name: (kind, {*re.findall(r"`(\w+)`", labels), "pipeline"}) for name, kind, labels, _ in rows}


def totals() -> dict[str, tuple[str, ...]]:
    """What each stage counts."""
    table = DOCUMENT.read_text().partition("| stage | `total` |")[2]
    rows = re.findall(r"^\| (\w+) \| ([\w, ()]+) \|$", table, re.MULTILINE)
    return {stage: tuple(re.sub(r" \([^)]*\)", "", names).split(", ")) for stage, names in rows}
