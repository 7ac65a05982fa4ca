"""The page in a real browser: what it shows equals the topics; it is live; it works by keyboard, on a phone and in the dark."""

import json
import math
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from susurrus.agents.config.settings import Settings
from susurrus.agents.dashboard import server
from susurrus.agents.demo.weblog import WebLog
from tests.agents.dashboard.published import charge, create, dashboard, write
from tests.agents.released import DAY, WINDOW, rows, said, settings
from tests.broker import Broker, wait_for
from tests.browser import CONTRAST
from tests.pipeline import Pipeline, archive_topic, produce

Opened = Callable[..., Page]
KEYS = "#histogram-table td.key"


def texts(page: Page, selector: str) -> list[str]:
    found: list[str] = page.locator(selector).all_text_contents()
    return found


def chart(page: Page, name: str = "histogram-chart") -> list[dict[str, Any]]:
    """What plotly was given."""
    traces: list[dict[str, Any]] = page.evaluate(
        """(name) => document.getElementById(name).data.map((trace) => ({x: trace.x, y: trace.y, error: trace.error_x?.array}))""",
        name,
    )
    return traces


def shown(page: Page, *keys: str) -> None:
    """Wait until the table has these keys, in this order."""
    expect(page.locator(KEYS)).to_have_count(len(keys))
    for at, key in enumerate(keys):
        expect(page.locator(KEYS).nth(at)).to_contain_text(key)


@pytest.fixture
def quiet(embedded: Broker, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A pipeline on the embedded broker that has published nothing yet."""
    found = settings(
        embedded.bootstrap_servers,
        pipeline={"name": "page-views", "prefix": embedded.new_prefix()},
        columns=[{"name": "visits"}],
        budget={"epsilon": 30.0, "delta": 1e-6},
        clock={"kind": "producer"},
    )
    create(embedded, found)
    return found


def release(of: Settings, trigger: int, counts: dict[bytes, int], *, window: int = WINDOW) -> None:
    write(
        of, {"histogram": rows(trigger, counts, window=window), "progress": [said(trigger, len(counts), window=window)]}
    )


@pytest.fixture
def lively(quiet: Settings) -> Settings:
    """The same after two days and two triggers of the third, with charges."""
    for day in range(3):
        for trigger in range(1, 3 if day == 2 else 5):
            counts = {f'"/page/{n}"'.encode(): 1000 // (n + 1) * trigger + day for n in range(10 * trigger)}
            release(quiet, trigger, counts, window=WINDOW + day * DAY)
    write(quiet, {"charges": [charge(quiet, WINDOW + day * DAY) for day in range(3)]})
    return quiet


# ---- the numbers ---------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(300)
def test_the_page_shows_exactly_what_a_worker_released(kafka: Broker, tmp_path: Path, opened: Opened) -> None:
    """The topic is read by a plain consumer, and its JSON by Python's own module."""
    raw = archive_topic(kafka, 2)
    records = [
        (zlib.crc32(visit.host.encode()) % 2, visit.encode(), visit.time * 1000) for visit in WebLog().visits[:8000]
    ]
    produce(kafka, raw, records)
    overrides = {
        "clock": {"until": "1995-08-01T12:00:00Z"},
        "window": {"length": "12h", "trigger_every": "3h"},
        "columns": [{"name": "hosts"}, {"name": "size", "kind": "sum", "field": "bytes", "bound": 50000, "grid": 100}],
    }
    with Pipeline(kafka, tmp_path, raw, overrides) as pipeline:
        pipeline.start()
        pipeline.wait()
        of = pipeline.settings
        latest = [json.loads(message.value()) for message in kafka.read_all(of.topic("latest"))]
        found = [row for row in latest if row["trigger"] == 4]
        triggers = [json.loads(message.value()) for message in kafka.read_all(of.topic("histogram"))]
        with dashboard(of) as served:
            page = opened(served.url + "#limit=100&sort=estimate&order=desc")
            expect(page.locator("#fact-keys .large")).to_have_text(str(len(found)))
            expect(page.locator("#fact-release .large")).to_contain_text("4 of 4 · final")
            expect(page.locator("#fact-release .small")).to_contain_text("complete: 4 of 4 partitions")
            expect(page.locator(KEYS)).to_have_count(len(found))
            wanted = {row["key"]: row["values"] for row in found}
            cells = page.locator("#histogram-table tbody tr").evaluate_all(
                "(rows) => rows.map((row) => [...row.cells].map((cell) => cell.textContent))"
            )
            names = [key.removeprefix("new") for key, *_ in cells]
            assert len(names) > 10
            assert set(names) == set(wanted)
            assert [wanted[name]["hosts"]["estimate"] for name in names] == sorted(
                (values["hosts"]["estimate"] for values in wanted.values()), reverse=True
            )
            for name, (_, hosts, margin, size, size_margin, _) in zip(names, cells, strict=True):
                for column, estimate, half in (("hosts", hosts, margin), ("size", size, size_margin)):
                    value = wanted[name][column]
                    assert float(estimate.replace(",", "")) == value["estimate"]
                    assert float(half.replace(",", "")) == math.ceil(1.96 * value["std_error"])
            (bars,) = chart(page)
            assert bars["x"] == [wanted[name]["hosts"]["estimate"] for name in names]
            assert bars["error"] == [1.96 * wanted[name]["hosts"]["std_error"] for name in names]
            # The curve of the first key, which is chosen.
            path = sorted(
                (row["trigger"], row["values"]["hosts"]["estimate"]) for row in triggers if row["key"] == names[0]
            )
            _, line = chart(page, "curve-chart")
            assert line["x"] == [3 * trigger for trigger, _ in path]
            assert line["y"] == [estimate for _, estimate in path]


def test_windows_stand_side_by_side_and_over_each_other(lively: Settings, opened: Opened) -> None:
    with dashboard(lively) as served:
        page = opened(served.url + "#limit=10")
        shown(page, *(f"/page/{n}" for n in range(10)))
        page.get_by_text("Compare").click()
        page.get_by_label("1 Aug 1995", exact=True).check()
        expect(page.locator("#histogram-chart .legendtext")).to_have_count(2)
        assert [trace["x"][:2] for trace in chart(page)] == [[2002, 1002], [4000, 2000]]
        assert len(chart(page, "curve-chart")) == 4  # a band and a line each
        page.get_by_label("Side by side").check()
        expect(page.locator("#curve-chart .xaxislayer-above, #curve-chart .x2y")).not_to_have_count(0)
        page.locator("#window").select_option(str(WINDOW))
        page.get_by_label("Only keys new").check()
        shown(page, *(f"/page/{n}" for n in range(30, 40)))


# ---- it is live ----------------------------------------------------------------------------------------------------------


def test_the_page_waits_follows_and_marks_what_is_new(quiet: Settings, opened: Opened) -> None:
    with dashboard(quiet) as served:
        page = opened(served.url)
        expect(page.locator("#board")).to_contain_text("Nothing is released yet")
        expect(page.locator("#board")).to_contain_text("Waiting for the first trigger. The first release is due at")
        expect(page.locator("#guarantee")).to_contain_text("at most e⁶")
        release(quiet, 1, {b'"/a"': 10, b'"/b"': 7})
        shown(page, "/a", "/b")
        release(quiet, 2, {b'"/a"': 12, b'"/b"': 9, b'"/c"': 11})
        shown(page, "/a", "/c", "/b")
        expect(page.locator("#announcer")).to_have_text("Release 2 of 4 of 1 Aug 1995 is complete: 3 keys, 1 new.")
        assert texts(page, ".keys button") == ["/c"]
        assert texts(page, f"{KEYS} .new") == ["new"]
        expect(page.locator("#fact-due .large")).to_have_text("Overdue")  # it is not 1995 any more


def test_what_a_window_has_from_those_before_it_is_said(quiet: Settings, opened: Opened) -> None:
    release(quiet, 4, {b'"/a"': 90})
    with dashboard(quiet) as served:
        page = opened(served.url)
        expect(page.locator("#fact-keys .small")).to_have_text("none new at this release")
        of_two = {"window": WINDOW + DAY, "of_partitions": 2, "persistence": 0.7}
        first = said(1, 1, remembered=1200, **of_two)
        write(quiet, {"histogram": rows(1, {b'"/a"': 70}, window=WINDOW + DAY), "progress": [first]})
        expect(page.locator("#fact-release")).to_contain_text("release 1 has 1 of 2 partitions")
        expect(page.locator("#fact-keys .small")).to_have_text("none new at this release")  # still of the window before
        write(quiet, {"progress": [said(1, 0, partition=1, remembered=34, **of_two)]})
        expect(page.locator("#fact-keys .small")).to_have_text(
            "1 new at this release · 1,234 keys remembered from the window before · κ 0.7"
        )
        assert all(ratio >= 4.5 for ratio, _ in page.evaluate(CONTRAST))


def test_a_release_that_lacks_partitions_is_not_shown_as_complete(quiet: Settings, opened: Opened) -> None:
    write(
        quiet,
        {
            "histogram": rows(1, {b'"/a"': 10}),
            "progress": [said(1, 1, of_partitions=2), said(1, 0, partition=1, of_partitions=2)],
        },
    )
    write(quiet, {"histogram": rows(2, {b'"/a"': 99}), "progress": [said(2, 1, of_partitions=2)]})
    with dashboard(quiet) as served:
        page = opened(served.url)
        shown(page, "/a")
        expect(page.locator("#fact-release")).to_contain_text("release 2 has 1 of 2 partitions")
        assert chart(page)[0]["x"] == [10]


def test_a_new_epoch_replaces_its_windows_and_the_page_says_so(quiet: Settings, opened: Opened) -> None:
    release(quiet, 1, {b'"/a"': 10})
    with dashboard(quiet) as served:
        page = opened(served.url)
        shown(page, "/a")
        write(quiet, {"histogram": rows(1, {b'"/a"': 14}, epoch=2), "progress": [said(1, 1, epoch=2)]})
        expect(page.locator("#epoch")).to_contain_text("Epoch 2")
        expect(page.locator("#histogram-table tbody")).to_contain_text("14")


def test_when_the_server_is_away_the_page_keeps_what_it_has_and_says_since_when(
    lively: Settings, opened: Opened
) -> None:
    with dashboard(lively) as served:
        page = opened(served.url, expected=("Failed to load resource",))
        shown(page, *(f"/page/{n}" for n in range(15)))
    expect(page.locator("#banner")).to_contain_text(
        "does not answer. The page keeps what it has, and goes on asking. Since"
    )
    expect(page.locator("#live-text")).to_contain_text("Not live")
    shown(page, *(f"/page/{n}" for n in range(15)))


# ---- keys may hold anything ----------------------------------------------------------------------------------------------


def test_keys_are_text_whatever_they_hold(quiet: Settings, opened: Opened) -> None:
    hostile = {
        "<img src=x onerror=\"document.title='run'\"><b>bold</b>": 90,
        "": 80,
        "x" * 4096: 70,
        "tab\tline\nnul\u0000": 60,
        "\u202eright to left": 50,
        "שלום": 40,
        "<a href='javascript:1'>link</a>&lt;": 30,
        "$x^2$ {y}": 20,
        "<b>x</b><br>": 10,
    }
    release(
        quiet,
        1,
        {
            json.dumps(key, ensure_ascii=False).encode() if "\u0000" not in key else json.dumps(key).encode(): count
            for key, count in hostile.items()
        },
    )
    with dashboard(quiet) as served:
        page = opened(served.url)
        expect(page.locator(KEYS)).to_have_count(len(hostile))
        seen = texts(page, f"{KEYS} bdi")
        assert seen[0] == "<img src=x onerror=\"document.title='run'\"><b>bold</b>"
        assert seen[1] == "(empty)"
        assert seen[2].startswith("xxx")
        assert seen[2].endswith("xxx")
        assert seen[3] == "tab␉line␊nul␀"
        assert seen[4] == "‹202E›right to left"
        assert seen[5] == "שלום"
        labels = texts(page, "#histogram-chart .ytick text")
        for key in ("<a href='javascript:1'>link</a>&lt;", "<b>x</b><br>", "$x^2$ {y}"):
            assert f"\u2068{key}\u2069" in labels
        assert page.locator("#board img, #board b, #board a, #board svg a").count() == 0
        assert page.title() == "page-views · Susurrus"
        for at in range(len(hostile)):
            page.locator(f"{KEYS} button").nth(at).click()
            expect(page.locator("#histogram-table tr[aria-current]")).to_have_count(1)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


# ---- everybody -----------------------------------------------------------------------------------------------------------


def test_everything_can_be_done_by_keyboard(lively: Settings, opened: Opened) -> None:
    with dashboard(lively) as served:
        page = opened(served.url)
        shown(page, *(f"/page/{n}" for n in range(15)))
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the data"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "content"
        visited = _tab_until(page, "search")
        assert "window" in visited
        page.keyboard.type("PAGE/1")
        shown(page, "/page/1", *(f"/page/{n}" for n in range(10, 20)))
        _tab_until(page, "only-new")
        page.keyboard.press("Space")
        shown(page, *(f"/page/{n}" for n in range(10, 20)))
        page.keyboard.press("Space")
        _tab_until(page, "sort-key-", "data-focus")
        page.keyboard.press("Enter")
        shown(page, "/page/1", *(f"/page/{n}" for n in range(10, 20)))
        page.keyboard.press("Enter")  # the focus is still on it
        shown(page, *(f"/page/{n}" for n in range(19, 9, -1)), "/page/1")
        assert page.locator("th[aria-sort=descending]").count() == 1
        _tab_until(page, None, "data-focus", starts="key-")
        page.keyboard.press("Enter")
        expect(page.locator("#curve-title")).to_have_text("/page/19")
        name = page.evaluate("document.activeElement.dataset.focus")
        assert name.startswith("key-")
        _back_until(page, "beside-menu")
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        page.keyboard.press("Space")
        expect(page.locator("#histogram-chart .legendtext")).to_have_count(2)
        page.keyboard.press("Escape")
        assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
        assert page.locator("#beside-menu").is_hidden()


def _tab_until(
    page: Page, wanted: str | None, attribute: str = "id", *, starts: str | None = None, key: str = "Tab"
) -> list[str]:
    """Press Tab until an element has the focus; every element on the way shows that it has it."""
    visited = []
    for _ in range(80):
        page.keyboard.press(key)
        here, outline = page.evaluate(
            "(name) => [document.activeElement.getAttribute(name) ?? '', getComputedStyle(document.activeElement).outlineStyle]",
            attribute,
        )
        assert outline not in ("none", ""), here
        visited.append(here)
        if here == wanted or (starts is not None and here.startswith(starts)):
            return visited
    raise AssertionError(f"{wanted or starts} was not reached: {visited}")


def _back_until(page: Page, menu: str) -> None:
    """Press Shift and Tab until the button of a menu has the focus."""
    on_it = "(menu) => document.activeElement.matches(`summary:has(+ #${menu})`)"
    for _ in range(80):
        page.keyboard.press("Shift+Tab")
        if page.evaluate(on_it, menu):
            return
    raise AssertionError(menu)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_have_contrast_in_both_colour_schemes(lively: Settings, opened: Opened, scheme: str) -> None:
    with dashboard(lively) as served:
        page = opened(served.url, color_scheme=scheme)
        shown(page, *(f"/page/{n}" for n in range(15)))
        expect(page.locator("#budget-chart .main-svg").first).to_be_visible()
        background = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert (sum(map(int, background[4:-1].split(","))) < 200) == (scheme == "dark")
        found = page.evaluate(CONTRAST)
        assert len(found) > 60
        assert [each for each in found if each[0] < 4.5] == []


def test_the_scheme_changes_while_the_page_is_open(lively: Settings, opened: Opened) -> None:
    with dashboard(lively) as served:
        page = opened(served.url)
        shown(page, *(f"/page/{n}" for n in range(15)))
        fill = "getComputedStyle(document.querySelector('#histogram-chart .bars path')).fill"
        before = page.evaluate(fill)
        page.emulate_media(color_scheme="dark")
        wait_for(lambda: page.evaluate(fill) != before, "bars in the other colours")


@pytest.mark.parametrize("width", [360, 768])
def test_a_narrow_screen_needs_no_scrolling_sideways(lively: Settings, opened: Opened, width: int) -> None:
    with dashboard(lively) as served:
        page = opened(f"{served.url}#beside={WINDOW}", viewport={"width": width, "height": 780}, has_touch=True)
        shown(page, *(f"/page/{n}" for n in range(15)))
        expect(page.locator("#curve-chart .main-svg").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        beyond = page.evaluate(
            "(width) => [...document.querySelectorAll('.card, .fact, select, button, input')].filter((e) => e.checkVisibility() "
            "&& !e.closest('.table') && e.getBoundingClientRect().right > width + 0.5).map((e) => e.outerHTML.slice(0, 80))",
            width,
        )
        assert beyond == []
        small = page.locator("button:visible, select:visible, summary:visible").evaluate_all(
            "(all) => all.filter((e) => e.getBoundingClientRect().height < 24).map((e) => e.outerHTML.slice(0, 80))"
        )
        assert small == []


def test_every_control_has_a_name_and_every_chart_a_table(lively: Settings, opened: Opened) -> None:
    with dashboard(lively) as served:
        page = opened(served.url)
        shown(page, *(f"/page/{n}" for n in range(15)))
        nameless = page.locator("button, input, select, summary").evaluate_all(
            "(all) => all.filter((e) => !(e.ariaLabel || e.textContent.trim() || e.labels?.length)).map((e) => e.outerHTML)"
        )
        assert nameless == []
        charts = page.locator(".chart:visible")
        assert charts.count() == 3
        assert all(charts.nth(at).get_attribute("aria-label") for at in range(3))
        for title in ("The curve as a table", "The burn-down as a table"):
            page.get_by_text(title).click()
        assert len(texts(page, "#budget .numbers >> nth=0 >> tbody tr")) == 3
        assert page.locator("section:has(#curve-chart) tbody tr").count() == 2
        assert page.locator("[aria-live], [role=status]").count() >= 2


def test_the_budget_burns_down(lively: Settings, opened: Opened) -> None:
    with dashboard(lively) as served:
        page = opened(served.url)
        expect(page.locator("#budget")).to_contain_text("A user who was active in every window has spent ε =")
        spent = chart(page, "budget-chart")[0]["y"]
        assert len(spent) == 3
        assert spent == sorted(spent)
        expect(page.locator("#fact-budget .small")).to_contain_text("windows left, until")


def test_without_plotly_the_tables_stay(lively: Settings, opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "plotly_asset", lambda: None)
    with dashboard(lively) as served:
        page = opened(served.url)
        shown(page, *(f"/page/{n}" for n in range(15)))
        expect(page.locator("#histogram-chart")).to_have_text(
            'No charts: plotly is not installed. An operator runs pip install "susurrus[dashboard]".'
        )


def test_a_view_is_in_its_address(lively: Settings, opened: Opened) -> None:
    with dashboard(lively) as served:
        page = opened(f"{served.url}#search=page%2F1&sort=key&order=asc&limit=10&window={WINDOW}")
        shown(page, "/page/1", *(f"/page/{n}" for n in range(10, 19)))
        page.get_by_role("button", name="Next").click()
        shown(page, "/page/19")
        other = opened(page.url)
        shown(other, "/page/19")


def test_a_board_whose_file_does_not_come_is_asked_for_again(lively: Settings, opened: Opened) -> None:
    """The state that named it has come, and does not come again before it changes."""
    with dashboard(lively) as served:
        page = opened(served.url, expected=("ERR_FAILED",))
        missed: list[str] = []

        def once(route: Route) -> None:
            missed.append(route.request.url)
            route.abort()

        page.route("**/histogram.js", once, times=1)
        page.reload()
        shown(page, *(f"/page/{n}" for n in range(15)))
        assert len(missed) == 1


def test_smoothed_numbers_are_shown_first_and_direct_ones_are_one_click_away(quiet: Settings, opened: Opened) -> None:
    """The second window remembers keys; one of them is hidden at its last release, where rows have direct numbers, too."""
    release(quiet, 4, {b'"/a"': 90, b'"/b"': 50})
    window = WINDOW + DAY
    first = rows(3, {b'"/a"': 30, b'"/b"': 20, b'"/gone"': 4}, window=window, smoothed={b'"/a"': 44, b'"/gone"': 5})
    counts = {b'"/a"': 70, b'"/b"': 80, b'"/new"': 40}
    last = rows(4, counts, window=window, smoothed={b'"/a"': 95}, direct={b'"/a"': 60, b'"/b"': 75, b'"/new"': 90})
    write(
        quiet,
        {"histogram": [*first, *last], "progress": [said(3, 3, window=window), said(4, 3, window=window)]},
    )
    with dashboard(quiet) as served:
        page = opened(served.url + "#limit=10")
        shown(page, "/a", "/b", "/new")
        expect(page.locator("#histogram-title + p")).to_have_text("2 Aug 1995 · release 4 of 4 · 1 key is smoothed")
        (bars,) = chart(page)
        assert (bars["x"], bars["error"]) == ([95, 80, 40], [1.96, 4.9, 4.9])
        assert texts(page, "#histogram-table td.pm") == ["2", "5", "5"]
        assert page.locator("#histogram-table td[title=smoothed]").all_text_contents() == ["95"]
        _, line = chart(page, "curve-chart")
        assert line["y"] == [44, 95]
        expect(page.locator("#curve-title + p")).to_have_text("visits, smoothed over the releases of the window")
        page.get_by_role("radio", name="Direct").check()
        shown(page, "/new", "/b", "/a")
        expect(page.locator("#histogram-chart .xtitle")).to_contain_text("visits, direct (bar)")
        (bars,) = chart(page)
        assert (bars["x"], bars["error"]) == ([90, 75, 60], [15.68] * 3)
        assert page.url.endswith("number=direct")
        expect(page.locator("#curve-title + p")).to_have_text("visits, direct over the releases of the window")
        _, line = chart(page, "curve-chart")
        assert line["y"] == [90], "the newest key's; it has one release"
        page.get_by_role("radio", name="Not smoothed").check()
        shown(page, "/b", "/a", "/new")
        # A window without smoothed rows beside it: its estimate is what there is.
        page.get_by_role("radio", name="Smoothed", exact=True).check()
        page.get_by_text("Compare").click()
        page.get_by_label("1 Aug 1995", exact=True).check()
        expect(page.locator("#histogram-chart .legendtext")).to_have_count(2)
        assert [trace["x"] for trace in chart(page)] == [[95, 80, 40], [90, 50, None]]
        # A key that is hidden now is not in the table, and its curve ends.
        assert all("/gone" not in text for text in texts(page, KEYS))
        assert all(ratio >= 4.5 for ratio, _ in page.evaluate(CONTRAST))


def test_a_curve_breaks_where_its_key_is_not_shown(quiet: Settings, opened: Opened) -> None:
    for trigger in range(1, 5):
        release(quiet, trigger, {b'"/b"': 5} if trigger == 3 else {b'"/a"': 10 * trigger, b'"/b"': 5})
    with dashboard(quiet) as served:
        page = opened(served.url)
        shown(page, "/a", "/b")
        band, line = chart(page, "curve-chart")
        assert line["x"] == [6, 12, None, 24]
        assert line["y"] == [10, 20, None, 40]
        assert band["x"] == [6, 12, 12, 6, None, 24, 24]
        page.get_by_role("button", name="Show the curve of /b").click()
        expect(page.locator("#curve-title")).to_have_text("/b")
        _, line = chart(page, "curve-chart")
        assert line["y"] == [5, 5, 5, 5]


def test_rows_with_one_number_offer_no_choice(lively: Settings, opened: Opened) -> None:
    with dashboard(lively) as served:
        page = opened(served.url + "#limit=10&number=direct")
        shown(page, *(f"/page/{n}" for n in range(10)))
        expect(page.locator("#number")).to_be_hidden()
        expect(page.locator("#histogram-title + p")).to_have_text("3 Aug 1995 · release 2 of 4")
