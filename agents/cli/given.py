"""The settings that ``--config`` and ``--sql`` give."""

import os
from pathlib import Path

from susurrus.agents.config.settings import Settings
from susurrus.agents.finding import Finding
from susurrus.agents.pipelines import load_settings
from susurrus.mechanisms.errors import ConfigurationError


def settings_of(config: Path | None, sql: Path | None = None, *, unresolved: list[Finding] | None = None) -> Settings:
    """The settings of ``--config`` and ``--sql``. Raises ConfigurationError when there is nothing to read.

    unresolved: takes what is wrong with passwords kept elsewhere, which is otherwise an error like any other.
    """
    if config is None and sql is None and not any(name.upper().startswith("SUSURRUS__") for name in os.environ):
        raise ConfigurationError("--config: is missing; give the pipeline's TOML file, or --sql and its SQL file")
    return load_settings(config, sql=sql, unresolved=unresolved)
