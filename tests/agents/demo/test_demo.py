"""The demonstration of the central histogram as people run it."""

import re
from pathlib import Path

from tests.agents.demo.running import run_demo


def test_the_demo_runs_from_end_to_end_and_leaves_nothing(tmp_path: Path) -> None:
    text = run_demo(tmp_path, "--rows", "5", SUSURRUS__PIPELINE__NAME="of-another-operator")
    first = re.search(r"^/images/NASA-logosmall\.gif +1,317 +([\d,]+) +(\d+) ", text, re.MULTILINE)
    assert first is not None, text
    # Six times the error bar's standard error, and the few that the cap leaves out.
    assert abs(int(first[1].replace(",", "")) - 1_317) < 6 * int(first[2]) / 1.96 + 60
    kept = re.search(r"^Kept +(\d+) of 2,088 urls, after trigger 24 of 24", text, re.MULTILINE)
    assert kept is not None
    assert 50 < int(kept[1]) < 110
    assert "factor" in text
