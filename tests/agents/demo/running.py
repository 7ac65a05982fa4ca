"""A demonstration as people run it: a process of its own, nothing installed, everything removed afterwards."""

import os
import subprocess
import sys
from pathlib import Path

from tests.waiting import PATIENCE


def run_demo(tmp_path: Path, *options: str, **environ: str) -> str:
    """What the demonstration prints; it must end well and leave nothing."""
    run = subprocess.run(
        [sys.executable, "-m", "susurrus.agents.cli", "demo", *options],
        env={**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "100", **environ},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        cwd=tmp_path,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert list(tmp_path.glob("susurrus-demo-*")) == []
    return run.stdout
