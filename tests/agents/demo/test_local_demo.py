"""The local demonstration as people run it."""

import re
from pathlib import Path

import pytest

from tests.agents.demo.running import run_demo


@pytest.mark.thorough
def test_the_demo_runs_from_end_to_end_and_leaves_nothing(tmp_path: Path) -> None:
    text = run_demo(tmp_path, "--local")
    assert len(re.findall(r"\d\.\d +4,000 ", text)) == 10  # every report of every interval, none twice
    found = re.search(r"(\d+) of 10 error bars", " ".join(text.split()))
    assert found is not None, text
    assert int(found[1]) >= 7  # 95 % bars: fewer than 7 of 10 about once in a thousand runs
    assert "2-locally private" in text
