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


CONTRAST = """
() => {
  const channel = (value) => { const c = value / 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    if (element.closest("svg, noscript, .unseen, .skip") || element.disabled) continue;
    if (![...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim())) continue;
    if (!element.checkVisibility()) continue;
    const [a, b] = [light(parse(getComputedStyle(element).color)), light(behind(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    found.push([ratio, `${element.tagName} ${element.textContent.slice(0, 40)}`]);
  }
  for (const text of document.querySelectorAll("svg text")) {
    const [a, b] = [light(parse(getComputedStyle(text).fill)), light(behind(text.closest(".chart")))];
    found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), `text ${text.textContent.slice(0, 40)}`]);
  }
  return found;
}
"""
"""Contrasts of all texts with what is behind them (WCAG 2), and which text it is."""
