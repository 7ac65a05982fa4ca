"""The Chromium that is installed on this machine, for tests of pages."""

import os
import shutil

import pytest

from tests import broker

_NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str:
    """Where it is. The test is skipped, and the end of the run says so, where there is none."""
    for name in _NAMES:
        if found := shutil.which(name):
            return found
    reason = f"no Chromium ({', '.join(_NAMES)} on PATH); install Debian's package chromium"
    broker.missing[reason] = broker.missing.get(reason, 0) + 1
    pytest.skip(reason)


def arguments() -> list[str]:
    """Chromium refuses its sandbox to root."""
    return ["--no-sandbox"] if os.geteuid() == 0 else []
