"""A real Chromium without a window, for the tests of pages. playwright drives it, and fetches none: it must be installed."""

import contextlib
import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests import broker

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """The browser. The test is skipped, and the end of the run says so, where none is installed."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        reason = f"no browser ({', '.join(PROGRAMS)} on PATH); install Debian's package chromium"
        broker.missing[reason] = broker.missing.get(reason, 0) + 1
        pytest.skip(reason)
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=sandbox)
        try:
            yield browser
        finally:
            browser.close()
