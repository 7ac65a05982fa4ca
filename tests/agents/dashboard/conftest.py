"""A headless Chromium, and pages that nothing goes wrong on."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser import chromium

_VIOLATIONS = """
window.violations = [];
addEventListener("securitypolicyviolation", (event) => window.violations.push(`${event.violatedDirective} ${event.blockedURI}`));
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The machine's own Chromium. Tests are skipped, loudly, where there is none."""
    with chromium() as found:
        yield found


@pytest.fixture
def opened(browser: Browser) -> Iterator[Callable[..., Page]]:
    """``opened(url, **context)``: a page. At the end of the test: no error was logged, no request left this host, nothing broke the
    policy of the page. expected: parts of messages that are meant."""
    pages: list[tuple[Page, str, list[str], list[str], list[str]]] = []

    def open_(url: str, *, expected: tuple[str, ...] = (), **context: Any) -> Page:
        options: dict[str, Any] = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce", **context}
        page = browser.new_context(**options).new_page()
        page.set_default_timeout(20_000)
        page.add_init_script(_VIOLATIONS)
        errors, requests = list[str](), list[str]()
        page.on("console", lambda said: errors.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        pages.append((page, url.split("#")[0], errors, requests, list(expected)))
        page.goto(url)
        return page

    yield open_
    for page, url, errors, requests, expected in pages:
        violations = page.evaluate("window.violations")
        page.context.close()
        meant = [*expected, "ERR_CONNECTION_REFUSED"]  # the test has ended, and its server with it
        assert [each for each in errors if not any(part in each for part in meant)] == []
        assert violations == []
        assert requests
        assert [each for each in requests if not each.startswith((url, "data:"))] == []


expect.set_options(timeout=20_000)
