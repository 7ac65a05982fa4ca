"""``susurrus config secret``. It is a file of its own because all that ``config check`` needs would load for seconds."""

from pathlib import Path
from typing import Annotated

import typer

from susurrus.agents.cli.console import out
from susurrus.agents.config import secrets


def secret(file: Annotated[Path, typer.Argument(help="File to write; never replaced.")]) -> None:
    """Make a noise secret. All workers of a pipeline need the same one. Anyone who has it can remove the noise."""
    secrets.create(file)
    out().print(f"wrote a new noise secret to {file}, readable by its owner only")
