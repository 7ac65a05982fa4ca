"""The local demonstration as people run it."""

import os
import re
import subprocess
import sys
from pathlib import Path


def test_the_demo_runs_from_end_to_end_and_leaves_nothing(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "susurrus.agents.cli", "demo", "--local"],
        env={**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
        cwd=tmp_path,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert list(tmp_path.glob("susurrus-demo-*")) == []
    assert len(re.findall(r"Z +4,000 ", run.stdout)) == 10  # every report of every interval, none twice
    found = re.search(r"(\d+) of 10 error bars", " ".join(run.stdout.split()))
    assert found is not None, run.stdout
    assert int(found[1]) >= 7  # 95 % bars: fewer than 7 of 10 about once in a thousand runs
    assert "2-locally private" in run.stdout
