"""The demonstration as people run it: a process of its own, nothing installed, everything removed afterwards."""

import os
import re
import subprocess
import sys
from pathlib import Path


def test_the_demo_runs_from_end_to_end_and_leaves_nothing(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "TMPDIR": str(tmp_path),
        "COLUMNS": "100",
        "SUSURRUS__PIPELINE__NAME": "of-the-user",
    }
    run = subprocess.run(
        [sys.executable, "-m", "susurrus.agents.cli", "demo", "--rows", "5"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
        cwd=tmp_path,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "24/24" in run.stdout
    first = re.search(r"^/images/NASA-logosmall\.gif +1,317 +([\d,]+) +(\d+) ", run.stdout, re.MULTILINE)
    assert first is not None, run.stdout
    # Six times the error bar's standard error, and the few that the cap leaves out.
    assert abs(int(first[1].replace(",", "")) - 1_317) < 6 * int(first[2]) / 1.96 + 60
    kept = re.search(r"^Kept +(\d+) of 2,088 urls, after trigger 24 of 24", run.stdout, re.MULTILINE)
    assert kept is not None
    assert 25 < int(kept[1]) < 80
    assert "factor" in run.stdout
    assert list(tmp_path.glob("susurrus-demo-*")) == []
