"""Configurations and samples of the tests of plans."""

from typing import Any

import numpy as np

from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.planning.sample import Sample
from susurrus.agents.planning.variants import Configuration

HOUR = 3_600_000
BEGIN = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""


def configuration(**sections: Any) -> Configuration:
    """A histogram with windows of a day and twelve triggers; sections are laid over it."""
    tables: dict[str, Any] = {
        "pipeline": {"name": "tried"},
        "input": {"topic": "raw", "user": "u", "key": ["k"]},
        "window": {"length": "1d", "trigger_every": "2h"},
        "bounds": {"max_records_per_user": 8},
        "privacy": {"epsilon": 6.0, "delta": 1e-6},
    }
    for name, of in sections.items():
        tables[name] = {**tables.get(name, {}), **of} if isinstance(of, dict) else of
    return Configuration(tables)


def settings(**sections: Any) -> HistogramSettings:
    return configuration(**sections).histogram()


def sample(user: Any, key: Any, time: Any, values: Any = None) -> Sample:
    """Records as they are given, sorted."""
    user, key, time = np.asarray(user, np.int64), np.asarray(key, np.int32), np.asarray(time, np.int64)
    values = np.zeros((len(user), 0), np.int64) if values is None else np.asarray(values, np.int64)
    order = np.lexsort((time, user))
    return Sample(
        user=user[order],
        key=key[order],
        time=time[order],
        values=values[order],
        users=len(np.unique(user)),
        key_names=[b'"key-%d"' % code for code in range(int(key.max()) + 1)],
        read=len(user),
        dropped={},
    )
