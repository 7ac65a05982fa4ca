"""What the server answers, and what it refuses, over HTTP; the feed behind it is without Kafka."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import ClientResponse
from aiohttp.test_utils import TestClient, TestServer

from susurrus.agents.dashboard import assets, server
from susurrus.agents.dashboard.server import DashboardServer
from susurrus.agents.histogram.board import HistogramBoard
from susurrus.agents.histogram.estimates import Release
from susurrus.agents.histogram.rolling_releases import RollingRelease
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.mechanisms.errors import ConfigurationError
from tests.agents.dashboard.published import FakeFeed, released
from tests.agents.released import DAY, WINDOW, settings

HOSTILE = ["", "<img src=x onerror=alert(1)>", "x" * 4096, "a\u0000b\n\u202eabc", "שלום", '"&quot;', 17, None]


def board(releases: Sequence[Release] = ()) -> HistogramBoard:
    found = HistogramBoard(
        HistogramSettings.of(settings(columns=[{"name": "visits"}])), "per user", keep=8, curve_bytes=1 << 20
    )
    for release in releases:
        found.windows.add(release)
    return found


def asked(
    test: Callable[[TestClient[Any, Any]], Awaitable[Any]],
    *releases: Release,
    host: str = "127.0.0.1",
    allowed: Sequence[str] = (),
) -> Any:
    """The result of a test with a client of a dashboard that has these releases."""

    async def run() -> Any:
        feed: Any = FakeFeed(board=board(releases), version=1, now=WINDOW)
        served = DashboardServer(feed, host=host, port=0, allowed=allowed)
        try:
            async with TestClient(TestServer(served.application())) as client:
                return await test(client)
        finally:
            served.close()

    return asyncio.run(run())


def get(
    path: str, *releases: Release, method: str = "GET", headers: dict[str, str] | None = None, **options: Any
) -> tuple[ClientResponse, Any]:
    async def test(client: TestClient[Any, Any]) -> tuple[ClientResponse, Any]:
        answer = await client.request(method, path, headers=headers or {})
        text = await answer.text()
        return answer, json.loads(text) if text and answer.content_type == "application/json" else text

    found: tuple[ClientResponse, Any] = asked(test, *releases, **options)
    return found


ONE = released({"/a": 10, "/b": 20, "/c": 15}, trigger=1)
TWO = released({"/a": 11, "/b": 21, "/c": 16, "/d": 5}, trigger=2)


@pytest.mark.parametrize(
    "path", ["/", "/assets/main.js", "/assets/plotly.min.js", "/api/state", "/api/table", "/nowhere"]
)
def test_every_answer_has_the_headers_that_confine_the_page(path: str) -> None:
    answer, _ = get(path, ONE)
    policy = dict(part.split(" ", 1) for part in answer.headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert "unsafe-eval" not in str(policy)
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == ("no-cache" if path == "/" or path.startswith("/assets") else "no-store")
    assert "aiohttp" not in answer.headers["Server"]
    assert answer.status == (404 if path == "/nowhere" else 200)


def test_nothing_of_the_page_comes_from_elsewhere_and_nothing_is_set_as_html() -> None:
    for name, asset in assets.own_assets().items():
        text = asset.data.decode().replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text, name
        assert "https://" not in text, name
        for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
            assert f".{forbidden}" not in text, name
            assert f" {forbidden}(" not in text, name


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_only_get_and_head_are_served(method: str) -> None:
    answer, _ = get("/api/state", method=method)
    assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")
    answer, text = get("/api/state", method="HEAD")
    assert (answer.status, text) == (200, "")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8470", 200),
        ("localhost", 200),
        ("[::1]:1", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("", 421),
    ],
)
def test_on_loopback_another_host_name_is_refused(host: str, status: int) -> None:
    for path in ("/", "/api/state", "/assets/main.js"):
        assert get(path, headers={"Host": host})[0].status == status
    assert get("/healthz", headers={"Host": host})[0].status == 200  # a kubelet asks by the pod's address


def test_names_can_be_allowed_and_elsewhere_than_on_loopback_all_are() -> None:
    proxied = {"Host": "dash.example:443"}
    assert get("/", headers=proxied, allowed=["dash.example"])[0].status == 200
    assert get("/", headers=proxied, host="0.0.0.0")[0].status == 200
    assert get("/", headers=proxied, host="0.0.0.0", allowed=["other.example"])[0].status == 421


def test_the_state_is_sent_again_only_where_it_has_changed() -> None:
    async def test(client: TestClient[Any, Any]) -> None:
        first = await client.get("/api/state")
        etag = first.headers["ETag"]
        again = await client.get("/api/state", headers={"If-None-Match": etag})
        assert (again.status, await again.read()) == (304, b"")
        other = await client.get("/api/state", headers={"If-None-Match": '"0"'})
        assert other.status == 200

    asked(test, ONE)


def test_files_are_compressed_and_not_sent_twice() -> None:
    async def test(client: TestClient[Any, Any]) -> None:
        whole = await client.get("/assets/plotly.min.js", headers={"Accept-Encoding": "identity"})
        body = await whole.read()
        packed = await client.get("/assets/plotly.min.js", headers={"Accept-Encoding": "gzip"})
        assert packed.headers["Content-Encoding"] == "gzip"
        assert await packed.read() == body
        again = await client.get("/assets/plotly.min.js", headers={"If-None-Match": whole.headers["ETag"]})
        assert again.status == 304

    asked(test)


def test_a_table_has_the_page_that_was_asked_for() -> None:
    _, said = get("/api/table?limit=2&offset=2&sort=estimate&order=desc", ONE, TWO)
    assert [(row["key"], row["values"]["visits"], row["new"], row["first"]) for row in said["rows"]] == [
        ([["/a", True]], [11, 2.5], False, 1),
        ([["/d", True]], [5, 2.5], True, 2),
    ]
    assert (said["keys"], said["found"], said["offset"], said["trigger"]) == (4, 4, 2, 2)
    assert said["largest"] == 21 + 1.96 * 2.5
    _, said = get("/api/table?new=1", ONE, TWO)
    assert [row["key"][0][0] for row in said["rows"]] == ["/d"]
    _, said = get("/api/table?offset=100&limit=3", ONE, TWO)
    assert (said["offset"], len(said["rows"])) == (3, 1)  # the last page there is


def test_curves_of_several_windows_and_the_same_key_beside() -> None:
    day = 86_400_000
    other = released({"/a": 40}, window_start=WINDOW + day, trigger=1)
    _, said = get(f"/api/table?window={WINDOW}&beside={WINDOW + day}&sort=key&order=asc", ONE, TWO, other)
    name = said["rows"][0]["name"]
    assert said["rows"][0]["beside"] == {str(WINDOW + day): [40, 2.5]}
    assert said["rows"][1]["beside"] == {str(WINDOW + day): None}
    _, said = get(f"/api/curves?key={name}&windows={WINDOW},{WINDOW + day}", ONE, TWO, other)
    assert said["key"] == [["/a", True]]
    assert [curve["points"] for curve in said["curves"]] == [
        [[1, WINDOW + day // 4, 10, 2.5], [2, WINDOW + day // 2, 11, 2.5]],
        [[1, WINDOW + day + day // 4, 40, 2.5]],
    ]


def test_whatever_a_key_holds_it_is_sent_found_and_drawn() -> None:
    release = released({key: 10 * (at + 1) for at, key in enumerate(HOSTILE)}, of_triggers=1)
    _, said = get("/api/table?sort=estimate&order=asc", release)
    sent = [row["key"][0] for row in said["rows"]]
    assert sent == [[key, True] if isinstance(key, str) else [json.dumps(key), False] for key in HOSTILE]
    for row in said["rows"]:
        _, curve = get(f"/api/curves?key={row['name']}&windows={WINDOW}", release)
        assert curve["key"] == row["key"]
    _, said = get("/api/table?search=%3CIMG", release)
    assert [row["key"][0][0] for row in said["rows"]] == [HOSTILE[1]]


def test_large_integers_are_sent_in_full() -> None:
    _, said = get("/api/table", released({"/a": 2**62 + 1}))
    assert said["rows"][0]["values"]["visits"][0] == str(2**62 + 1)


@pytest.mark.parametrize(
    "query",
    [
        "table?sort=size",
        "table?limit=0",
        "table?limit=201",
        "table?offset=-1",
        "table?offset=x",
        "table?window=5",
        "table?column=bytes",
        "table?level=country",
        "curves?key=zz",
        "curves?key=00&windows=x",
        "rows",
    ],
)
def test_a_question_without_an_answer_is_told_why(query: str) -> None:
    answer, said = get(f"/api/{query}", ONE)
    assert answer.status == 400
    assert len(said["error"]) > 8


def test_before_anything_is_released_a_table_is_empty() -> None:
    _, said = get("/api/table")
    assert (said["rows"], said["window"]) == ([], None)
    _, said = get("/api/state")
    assert (said["windows"], said["announced"]) == ([], None)
    assert said["due"]["at"] > WINDOW


def test_the_ranking_is_that_of_the_newest_release_of_a_window() -> None:
    top = {"order_by": "visits", "limit": 2, "having": ["visits > 4"]}
    ours = HistogramSettings.of(settings(columns=[{"name": "visits"}], top=top))
    found = HistogramBoard(ours, "per user", keep=1, curve_bytes=1 << 20)
    assert found.answer("ranking", {}) == {"ranking": str(ours.top.ranking), "rows": [], "window": None}  # type: ignore[union-attr]
    assert found.take(([ONE, TWO], []))
    said = found.answer("ranking", {})
    assert (said["window"], said["trigger"]) == (WINDOW, 2)
    assert said["ranking"] == found.state(WINDOW)["ranking"] == "HAVING visits > 4 ORDER BY visits DESC LIMIT 2"
    assert [(row["key"], row["values"]) for row in said["rows"]] == [
        ([("/b", True)], [21, 2.5]),
        ([("/c", True)], [16, 2.5]),
    ]
    # The names lead to the curves of the same keys.
    curves = found.answer("curves", {"key": said["rows"][0]["name"], "windows": str(WINDOW)})
    assert [point[2] for point in curves["curves"][0]["points"]] == [20, 21]
    later = released({"/z": 7}, window_start=WINDOW + 86_400_000, trigger=1)
    assert found.take(([later], []))
    assert [row["key"][0][0] for row in found.answer("ranking", {})["rows"]] == ["/z"]
    assert not found.take(([TWO], []))
    assert board([ONE]).state(WINDOW)["ranking"] is None


def test_the_newest_rolling_view_is_shown_with_what_its_rows_count() -> None:
    ours = HistogramSettings.of(settings(columns=[{"name": "visits"}], window={"trigger_every": "6h", "rolling": True}))
    found = HistogramBoard(ours, "per user", keep=1, curve_bytes=1 << 20)
    nothing = {"period": None, "column": "visits", "keys": 0, "whole": 0, "rows": []}
    assert found.answer("rolling", {}) == nothing
    older, newer = (rolling_of(trigger) for trigger in (1, 2))
    assert found.take(([older, newer], []))
    assert not found.take(([older], []))
    said = found.answer("rolling", {"limit": "2"})
    assert said["period"] == [newer.period_start, newer.period_end] == [WINDOW - DAY // 2, WINDOW + DAY // 2]
    assert (said["keys"], said["whole"]) == (3, 1)
    assert [(row["key"][0][0], row["values"], row["counted"]) for row in said["rows"]] == [
        ("/b", [20, 2.5], [WINDOW, WINDOW + DAY // 2]),
        ("/a", [10, 2.5], [WINDOW - DAY // 2, WINDOW + DAY // 2]),
    ]
    assert found.state(WINDOW)["rolling"] is True
    assert found.state(WINDOW)["windows"] == []  # a view is no window
    assert board([ONE]).state(WINDOW)["rolling"] is False


def rolling_of(trigger: int) -> RollingRelease:
    of = released({"/a": 5 * trigger, "/b": 10 * trigger, "/c": trigger}, trigger=trigger)
    end = of.trigger_time
    return RollingRelease(
        **{each.name: getattr(of, each.name) for each in fields(Release)},
        counted_from=np.array([end - DAY, WINDOW, end - DAY]),
        counted_until=np.array([end, end, WINDOW]),
        period_start=end - DAY,
    )


def test_a_path_leads_to_no_other_file() -> None:
    for path in ("/assets/..%2Fserver.py", "/assets/%2e%2e/server.py", "/assets/index.html/", "/assets/none.js"):
        assert get(path)[0].status == 404


def test_without_plotly_the_page_says_so_and_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "plotly_asset", lambda: None)
    assert get("/assets/plotly.min.js")[1] == "// plotly is not installed\n"
    assert get("/api/state")[1]["charts"] is False
    assert get("/")[0].status == 200


def test_plotly_is_found_without_its_python_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in the image, which has only the JavaScript."""
    folder = tmp_path / "plotly" / "package_data"
    folder.mkdir(parents=True)
    (folder / "plotly.min.js").write_text("// charts")
    monkeypatch.setattr(
        assets, "find_spec", lambda name: type("Spec", (), {"submodule_search_locations": [str(tmp_path / name)]})
    )
    found = assets.plotly_asset()
    assert found is not None
    assert found.data == b"// charts"
    monkeypatch.setattr(assets, "find_spec", lambda name: None)
    assert assets.plotly_asset() is None


def test_a_port_in_use_is_named() -> None:
    feed: Any = FakeFeed(board=None, version=1)
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(ConfigurationError, match="give another --port"),
    ):
        DashboardServer(feed, host="127.0.0.1", port=taken.getsockname()[1])


def test_a_defect_is_not_shown_to_visitors(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("/etc/secret")

    monkeypatch.setattr(HistogramBoard, "answer", broken)
    answer, text = get("/api/table")
    assert (answer.status, "secret" in text) == (500, False)
