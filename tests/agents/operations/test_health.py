"""The operators' page in a browser: it says what the tasks say, follows them, loads nothing from elsewhere, fits every screen."""

import html.parser
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from susurrus.agents.operations.health import TRUST_ZONE, policy
from susurrus.agents.operations.metrics import registry_of
from susurrus.agents.operations.web import Pages, WebServer
from susurrus.agents.runtime.metrics import Told
from susurrus.topics.wire.timestamps import format_time
from tests.agents.config.test_settings import changed
from tests.agents.operations.test_web import Task, supervisor_of
from tests.browser import CONTRAST, chromium

TROUBLE = "source 2 is missing <b>bold</b> & more: start it"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def supervisor() -> Any:
    found = supervisor_of(
        Task("route", 0, committed_counters={"in": 1_000, "late": 7}),
        Task("route", 1, committed_counters={"in": 500, "late": 1}),
        Task("bound", 1, stalled=TROUBLE, position=4_567),
        Task("release", 0, interval=None, committed_at=None, position=-1, state="starting"),
    )
    found.metrics.releases.append(Told("release-0", "window 2026-11-24T00:00:00Z, trigger 3 of 24", 74, 0.126, 1_000))
    return found


@pytest.fixture
def address(supervisor: Any) -> Iterator[str]:
    server = WebServer(Pages(supervisor, registry_of(supervisor, changed()), changed()), host="127.0.0.1", port=0)
    yield f"http://localhost:{server.server_port}/"
    server.close()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """The page, with what it complains of and what it asks for."""
    context = browser.new_context()
    found = context.new_page()
    complaints: list[str] = []
    found.on("console", lambda message: complaints.append(message.text))
    found.on("pageerror", lambda error: complaints.append(str(error)))
    found.on("request", lambda request: complaints.append(request.url) if not request.url.startswith(address) else None)
    found.goto(address)
    yield found
    context.close()
    assert [text for text in complaints if "favicon" not in text] == []


def cells(page: Page, table: str) -> list[list[str]]:
    rows = page.get_by_role("region", name=table, exact=True).locator("tbody tr").all()
    return [[cell.inner_text() for cell in row.locator("th, td").all()] for row in rows]


def test_the_page_says_what_the_tasks_do(page: Page) -> None:
    expect(page.get_by_role("note")).to_have_text(TRUST_ZONE)
    closed = format_time(changed().calendar.boundary(3))
    found = {row[0]: row for row in cells(page, "Partitions of this worker")}
    assert found["bound-1"][1:4] == ["stalled", "4,567", closed]
    assert found["bound-1"][-1] == TROUBLE
    assert re.fullmatch(r"[\d,]+ intervals", found["bound-1"][4])
    assert found["release-0"][1:6] == ["starting", "", "", "", ""]
    assert found["route-0"][1] == "running"
    assert ["route", "in 1,500, late 8"] in cells(page, "Totals by stage")
    [release] = cells(page, "Last releases of this worker")
    assert release == [
        "release-0",
        "window 2026-11-24T00:00:00Z, trigger 3 of 24",
        "74",
        "0.13",
        "1970-01-01T00:00:01Z",
    ]
    expect(page.locator("#troubles li")).to_have_text(f"bound-1: {TROUBLE}")


def test_the_page_follows_the_tasks(page: Page, supervisor: Any) -> None:
    expect(page.get_by_role("status")).to_contain_text("Live")
    task = supervisor.tasks["bound", 1]
    task.stalled, task.position = None, 9_999
    expect(page.locator("#troubles")).to_contain_text("Nothing.")
    expect(page.locator("#partitions")).to_contain_text("9,999")


def test_a_worker_that_is_gone_is_said_to_be_gone(browser: Browser, supervisor: Any) -> None:
    server = WebServer(Pages(supervisor, registry_of(supervisor, changed()), changed()), host="127.0.0.1", port=0)
    page = browser.new_page()
    page.goto(f"http://localhost:{server.server_port}/")
    server.close()
    expect(page.get_by_role("status")).to_contain_text("No answer from the worker for", timeout=20_000)
    page.close()


@pytest.mark.parametrize("width", [360, 700, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_the_screen_and_can_be_read(browser: Browser, address: str, width: int, scheme: Any) -> None:
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.goto(address)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    found = page.evaluate(CONTRAST)
    assert len(found) > 30
    assert [each for each in found if each[0] < 4.5] == []
    page.close()


def test_tables_can_be_reached_by_keyboard(page: Page) -> None:
    reached = set()
    for _ in range(8):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate("document.activeElement.getAttribute('aria-label') || document.activeElement.tagName")
        )
    assert {"Partitions of this worker", "Totals by stage", "Last releases of this worker", "A"} <= reached


def get(address: str, **headers: str) -> tuple[int, str, dict[str, str]]:
    request = urllib.request.Request(address, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(), dict(error.headers)


class Scripts(html.parser.HTMLParser):
    """The tags of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.loads += [value or "" for name, value in attributes if name == "src" or name.startswith("on")]


def test_a_browser_gets_a_page_that_may_load_nothing_and_others_get_lines(address: str) -> None:
    status, text, headers = get(address, Accept="text/html,application/xhtml+xml")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert headers["Content-Security-Policy"] == policy()
    assert "default-src 'none'" in policy()
    assert "unsafe" not in policy()
    assert headers["Cache-Control"] == "no-store"
    parser = Scripts()
    parser.feed(text)
    assert parser.loads == []
    assert "b" not in parser.tags  # what a reason says is text
    assert get(address)[2]["Content-Type"] == "text/plain; charset=utf-8"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_a_page_on_loopback_answers_to_no_other_name(address: str, host: str) -> None:
    """Another site's page in an operator's browser may let its own name point to this machine."""
    assert get(address, Host=host)[0] == 421


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:9000", "[::1]:9000"])
def test_a_page_on_loopback_answers_to_the_names_of_loopback(address: str, host: str) -> None:
    assert get(address, Host=host)[0] == 200
