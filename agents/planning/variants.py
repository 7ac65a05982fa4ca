"""A configuration and what it would be with other public constants: for strategies beside each other, and for what-if tables.

Every variant is checked as a configuration file is, so a forecast never shows what no worker would run.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

from susurrus.agents.config.settings import Settings
from susurrus.agents.histogram.pipeline import HistogramPipeline
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.pipelines import settings_from
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram.registry import STRATEGIES

MOST_VARIANTS: Final = 64
"""Rows of a what-if table."""
_PLACES: Final = {
    "c": ("C", "bounds", "max_records_per_user"),
    "m": ("m", "bounds", "max_records_per_key"),
    "epsilon": ("epsilon", "privacy", "epsilon"),
    "delta": ("delta", "privacy", "delta"),
    "t": ("T", "window", "trigger_every"),
}

Changes = dict[str, float]
"""Other values of the constants in `_PLACES`, by their short names."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """The tables of one pipeline, as `tables_of` reads them. directory: where the files are that they name."""

    tables: Mapping[str, Any]
    directory: Path = Path()

    def settings(self, changes: Mapping[str, float] | None = None, strategy: str | None = None) -> Settings:
        """The settings with other constants. Raises ConfigurationError where they do not go together."""
        tables = copy.deepcopy(dict(self.tables))
        for name, value in (changes or {}).items():
            _, section, field = _PLACES[name.lower()]
            tables.setdefault(section, {})[field] = self._every(value) if name == "T" else value
        if strategy is not None and isinstance(tables.get("privacy"), dict):
            tables["privacy"]["strategy"] = strategy
            for other in set(STRATEGIES) - {strategy}:
                tables["privacy"].pop(other, None)
        return settings_from(tables, directory=self.directory, unresolved=[])

    def histogram(self, changes: Mapping[str, float] | None = None, strategy: str | None = None) -> HistogramSettings:
        """The same of a histogram, whose mechanism accepts its numbers. Raises ConfigurationError."""
        settings = HistogramSettings.of(self.settings(changes, strategy))
        _ = HistogramPipeline(settings).strategy
        return settings

    def _every(self, triggers: float) -> str:
        """The trigger interval of a window with so many triggers."""
        settings = HistogramSettings.of(settings_from(self.tables, directory=self.directory, unresolved=[]))
        length = settings.calendar.windows.usual
        if length % int(triggers):
            raise ConfigurationError(f"T={triggers:g}: does not divide the window of {length} ms; use another number")
        return f"{length // int(triggers)}ms"


def what_if(options: list[str]) -> list[Changes]:
    """The product of options like ``C=8,16,32`` and ``epsilon=1,2``. Raises ConfigurationError."""
    axes: dict[str, list[float]] = {}
    for option in options:
        name, equals, values = option.partition("=")
        place = _PLACES.get(name.strip().lower())
        if place is None or not equals:
            known = ", ".join(short for short, *_ in _PLACES.values())
            raise ConfigurationError(
                f"what-if={option}: write a constant ({known}) and its values, for example C=8,16,32"
            )
        axes.setdefault(place[0], []).extend(_number(option, place[0], value) for value in values.split(","))
    variants = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())] if axes else []
    if len(variants) > MOST_VARIANTS:
        raise ConfigurationError(
            f"what-if: {len(variants)} combinations, and a table has at most {MOST_VARIANTS}; give fewer values"
        )
    return variants


def _number(option: str, name: str, text: str) -> float:
    try:
        value = float(text) if name in ("epsilon", "delta") else int(text)
    except ValueError:
        value = 0
    if not value > 0:
        kind = "numbers" if name in ("epsilon", "delta") else "whole numbers"
        raise ConfigurationError(f"what-if={option}: {name} takes {kind} above 0, separated by commas")
    return value
