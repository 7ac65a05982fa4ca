"""Make docs/images/dashboard*.png: real pipelines on the embedded broker, shown by the dashboard in a headless Chromium.

    python tests/docs/make_screenshots.py

Four days of the web log that the package ships: a day has a random sample of the log's hosts, drawn anew for each day, and its
number of visits. The last one is under way. The stream and the local reports are those of the demonstrations.
"""

import argparse
import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
from PIL import Image
from playwright.sync_api import Browser, Page
from rich.console import Console
from rich.progress import Progress

from susurrus.agents.dashboard.serving import serving
from susurrus.agents.demo.local import LocalDemo
from susurrus.agents.demo.machinery import Demo, DemoRun, configured
from susurrus.agents.demo.meter import smart_meter
from susurrus.agents.demo.stream import StreamDemo
from susurrus.agents.demo.weblog import DAY, WebLog
from susurrus.agents.histogram.releases import ReleaseReader
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.kafka.embedded import PARTITIONS, EmbeddedBroker
from susurrus.agents.pipelines import load_settings
from tests.browser import chromium

IMAGES: Final = Path(__file__).parents[2] / "docs" / "images"
LARGEST: Final = 200_000
DAYS: Final = (0.9, 1.0, 0.8, 0.95)
"""Of each day: how many hosts it has, as a share of the log's."""
LAST_HOUR: Final = 18
SECTIONS: Final = """\
[input]
topic = "web-requests"
user = "host"
key = ["url"]
time = "time"
time_unit = "s"

[start]
from = "earliest"
first_window = "{day}"

[clock]
kind = "replay"
until = "1995-08-04T{hour}:00:00Z"

[window]
length = "1d"
trigger_every = "1h"

[bounds]
max_records_per_user = 32

[[columns]]
name = "hosts"

[[columns]]
name = "kilobytes"
kind = "sum"
expression = "bytes / 1000"
bound = 3
grid = 0.01

[keys]
remember = 6

[budget]
epsilon = 30
delta = 1e-6

[privacy]
epsilon = 6
delta = 1e-9
secret_file = "secret"
"""


class FourDays:
    """Several windows of the shipped log."""

    kind = "histogram"
    title = ""
    sections = SECTIONS.format(day=DAY, hour=LAST_HOUR)

    def play(self, run: DemoRun) -> str:
        """Produce the days, and wait until the last one is as far as the archive goes."""
        log, rng = WebLog(), np.random.default_rng(14)
        hosts = sorted(log.urls_of_host)
        visits: dict[str, list[Any]] = {}
        for visit in log.visits:
            visits.setdefault(visit.host, []).append(visit)
        records = []
        for number, share in enumerate(DAYS):
            for copy, host in enumerate(rng.choice(hosts, round(share * len(hosts)))):
                partition = int(rng.integers(PARTITIONS))
                for visit in visits[str(host)]:
                    at = visit.time + 86_400 * number
                    if number < len(DAYS) - 1 or at % 86_400 < LAST_HOUR * 3600:
                        moved = replace(visit, host=f"{number}-{copy}", time=at)
                        records.append((moved.encode(), moved.host, partition, at * 1000))
        records.sort(key=lambda record: record[3])
        run.produce("produced", records)
        run.start_worker()
        reader = run.stack.enter_context(ReleaseReader(HistogramSettings.of(run.settings)))
        released = 0

        def done() -> int:
            nonlocal released
            released += len(reader.poll(0.2))
            return released

        run.wait("released", 24 * (len(DAYS) - 1) + LAST_HOUR, done)
        return ""


@contextlib.contextmanager
def page_of(demo: Demo, browser: Browser, **options: Any) -> Iterator[tuple[str, Callable[..., Page]]]:
    """A demonstration that has run, and a function that opens its page."""
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(TemporaryDirectory()))
        broker = stack.enter_context(EmbeddedBroker())
        configured(demo, place, broker.bootstrap_servers)
        text = (place / "demo.toml").read_text().replace('name = "demo"', f'name = "{options["name"]}"')
        # The log is small: only one partition has enough keys of the day before to smooth their rows.
        text = text.replace(f"bounded_partitions = {PARTITIONS}", "bounded_partitions = 1")
        (place / "demo.toml").write_text(text)
        settings = load_settings(place / "demo.toml", {})
        for topic in (
            settings.input.topic,
            *(settings.topic(spec.name) for spec in settings.topic_specs),
            settings.topics.charges,
        ):
            broker.create(topic)
        bars = stack.enter_context(Progress(console=Console(stderr=True)))
        demo.play(DemoRun(100, settings, place, stack, bars))
        server = stack.enter_context(serving(settings, port=0))
        time.sleep(5.0)  # until it has read everything

        def opened(address: str = "", *, width: int = 1280, height: int = 960, dark: bool = False) -> Page:
            context = browser.new_context(
                viewport={"width": width, "height": height},
                device_scale_factor=2,
                color_scheme="dark" if dark else "light",
                reduced_motion="reduce",
            )
            page = context.new_page()
            page.goto(server.url + address)
            page.get_by_text("Live", exact=True).wait_for()
            page.locator(".chart .main-svg").first.wait_for()
            time.sleep(1.5)
            return page

        yield server.url, opened


def saved(page: Page, name: str, *, whole: bool = False) -> None:
    """A picture of 255 colours, which these pages do not exceed by far. Raises ValueError where it is too large for docs."""
    path = IMAGES / f"{name}.png"
    page.screenshot(path=path, full_page=whole)
    page.context.close()
    with Image.open(path) as image:
        small = image.convert("RGB").quantize(255, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    small.save(path, optimize=True)
    print(name, path.stat().st_size)
    if path.stat().st_size > LARGEST:
        raise ValueError(f"{path} is larger than {LARGEST} bytes; show less")


def histogram(browser: Browser) -> None:
    with page_of(FourDays(), browser, name="page-views") as (_, opened):
        page = opened("#limit=10", height=1060)
        windows = page.evaluate("fetch('api/state').then((answer) => answer.json())")["windows"]
        earlier = ",".join(str(window["start"]) for window in windows[1:3])
        saved(page, "dashboard")
        saved(opened("#limit=10", dark=True), "dashboard-dark")
        saved(opened(f"#beside={earlier}&limit=10&layout=beside"), "dashboard-windows")
        saved(opened("#limit=10", width=390, height=844), "dashboard-phone")


def stream(browser: Browser) -> None:
    with page_of(StreamDemo(smart_meter(), epsilon=2.0), browser, name="meter-readings") as (_, opened):
        saved(opened(height=720), "dashboard-stream")


def local(browser: Browser) -> None:
    with page_of(LocalDemo(epsilon=2.0), browser, name="meters") as (_, opened):
        saved(opened(height=720), "dashboard-local")


PICTURES: Final = {"histogram": histogram, "stream": stream, "local": local}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=json.dumps(list(PICTURES)))
    parser.add_argument("only", nargs="*", choices=[*PICTURES, []], help="which pipelines; all by default")
    chosen = parser.parse_args().only or list(PICTURES)
    IMAGES.mkdir(exist_ok=True)
    with chromium() as launched:
        for picture in chosen:
            PICTURES[picture](launched)
