"""``kind = "count"``: kept records."""

from susurrus.agents.histogram.columns.base import ColumnKind


class Count(ColumnKind):
    """Kept records."""

    kind = "count"
    meaning = "kept records"
