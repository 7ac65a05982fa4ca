"""What the demonstrations share: a place for their files, the worker process, progress bars."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

PATIENCE_SECONDS: Final = 120.0


@contextlib.contextmanager
def place_of(keep: bool) -> Iterator[Path]:
    """A directory for secret, state and log, removed afterwards unless it is to be kept."""
    place = Path(tempfile.mkdtemp(prefix="susurrus-demo-"))
    try:
        yield place
    finally:
        if not keep:
            shutil.rmtree(place, ignore_errors=True)


def bars_of(console: Console) -> Progress:
    """Progress bars that fit the terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        expand=console.width < 100,
    )


@contextlib.contextmanager
def worker_of(place: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """The worker process; its log goes to a file. The user's own SUSURRUS variables are not for the demonstration."""
    environment = {name: value for name, value in os.environ.items() if not name.upper().startswith("SUSURRUS")}
    command = [sys.executable, "-m", "susurrus.agents.cli", "worker", "--config", str(place / "demo.toml")]
    with (place / "worker.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=place
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def tail_of(place: Path, lines: int = 15) -> str:
    """The worker's last words."""
    text = (place / "worker.log").read_text(encoding="utf-8", errors="replace")
    return "\n".join(text.splitlines()[-lines:]) or "(none)"
