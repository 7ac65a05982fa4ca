"""How the page writes times: its file text.js, run by Node.js where there is one."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import susurrus.agents.dashboard as dashboard

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="needs Node.js")
FILE = Path(next(iter(dashboard.__path__))) / "page" / "text.js"


def shown(tmp_path: Path, zone: str | None, expression: str) -> object:
    """An expression of the file's functions, with times in a zone. at(text): an instant."""
    module = tmp_path / "text.mjs"
    module.write_text(FILE.read_text(encoding="utf-8"), encoding="utf-8")
    program = (
        "import { clock, day, moment, offset, showTimesIn, windowName } from './text.mjs';"
        f"const at = Date.parse; showTimesIn({json.dumps(zone)}); console.log(JSON.stringify({expression}));"
    )
    done = subprocess.run(
        [str(NODE), "--input-type=module", "-e", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("zone", "start", "end", "name"),
    [
        (None, "2026-06-01T00:00Z", "2026-06-02T00:00Z", "1 Jun 2026"),
        (None, "2026-06-01T00:00Z", "2026-06-08T00:00Z", "1 Jun 2026 to 7 Jun 2026"),
        (None, "2026-06-01T01:00Z", "2026-06-01T02:00Z", "1 Jun 2026, 01:00–02:00"),
        ("Europe/Berlin", "2026-10-24T22:00Z", "2026-10-25T23:00Z", "25 Oct 2026"),
        ("Europe/Berlin", "2026-09-30T22:00Z", "2026-10-31T23:00Z", "1 Oct 2026 to 31 Oct 2026"),
        ("America/Sao_Paulo", "2017-10-15T03:00Z", "2017-10-16T02:00Z", "15 Oct 2017"),  # it begins at one o'clock
    ],
)
def test_a_window_is_named_by_its_days(tmp_path: Path, zone: str | None, start: str, end: str, name: str) -> None:
    assert shown(tmp_path, zone, f"windowName(at({start!r}), at({end!r}))") == name


@pytest.mark.parametrize(
    ("zone", "text"),
    [
        (None, "24 Oct 2026, 22:00:00 UTC"),
        ("Europe/Berlin", "25 Oct 2026, 00:00:00 +02:00"),
        ("Asia/Kathmandu", "25 Oct 2026, 03:45:00 +05:45"),
        ("Africa/Abidjan", "24 Oct 2026, 22:00:00 +00:00"),
        ("Nowhere/Else", "24 Oct 2026, 22:00:00 UTC"),  # the browser may know fewer zones
    ],
)
def test_an_instant_has_its_offset(tmp_path: Path, zone: str | None, text: str) -> None:
    assert shown(tmp_path, zone, "moment(at('2026-10-24T22:00Z'))") == text
