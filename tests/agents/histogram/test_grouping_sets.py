"""Grouping sets: what a file says of them, keys and levels, and whole pipelines on a broker, byte by byte after kills."""

import json
import random
from collections import Counter, defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from susurrus.agents.histogram import capped_level
from susurrus.agents.histogram.early_drop import EarlyDrop
from susurrus.agents.histogram.level_keys import LevelKeys, PublicKeys, declared, parts_of
from susurrus.agents.histogram.releases import ReleaseReader
from susurrus.agents.histogram.user_state import UserState
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram.bounding import Bounding
from susurrus.topics import histogram
from susurrus.topics.wire.partitioner import placements
from tests.agents.histogram.test_bound_stage import HOUR, PARTITIONS, block_bytes, random_log, released, run
from tests.agents.released import settings
from tests.agents.stages import SECRET as SECRET_BYTES
from tests.agents.stages import WINDOW, services_of
from tests.broker import Broker
from tests.chaos.conftest import archive
from tests.pipeline import CRASHING, EPOCH, SECRET, THREE_POINTS, Pipeline, Public, merged
from tests.reference import Event, canonical, expected, priority

SETS = [["country"], ["country", "city"], []]


def made(**sections: Any) -> Any:
    given = {
        "input": {"key": ["country", "city"], "grouping_sets": SETS},
        "privacy": {"epsilon": 6.0, "delta": 1e-9},
        **sections,
    }
    given["input"] = {"topic": "raw", "user": "id", **given["input"]}
    return settings(**given)


# ---- settings ------------------------------------------------------------------------------------------------------------


def test_levels_have_names_caps_and_parts_of_the_budget() -> None:
    levels = made(
        bounds={"max_records_per_user": 16},
        levels=[{"key": ["country"], "max_records_per_user": 4}, {"key": [], "name": "world", "share": 0.1}],
    ).grouping
    assert [(level.name, level.parts, level.max_records) for level in levels] == [
        ("country", (0,), 4),
        ("country, city", (0, 1), 16),
        ("world", (), 1),  # there is one key, of which one record counts
    ]
    assert [level.share for level in levels] == pytest.approx([0.3, 0.6, 0.1])
    assert [level.discover for level in levels] == [True, True, False]


def test_without_grouping_sets_there_are_no_levels() -> None:
    plain = made(input={"key": ["country", "city"]})
    assert plain.grouping == ()
    assert "levels" not in plain.published_fields()
    assert "grouping_sets" not in plain.published_fields()["input"]


@pytest.mark.parametrize(
    "sections",
    [
        {
            "input": {"key": ["country", "city"], "grouping_sets": [["country", "city"], ["country"], []]}
        },  # other letters
        {"levels": [{"key": ["country"], "name": "land"}]},
        {"levels": [{"key": ["country"], "max_records_per_user": 2}]},
        {"levels": [{"key": ["country"], "share": 0.25}]},
    ],
)
def test_the_digest_covers_every_level(sections: dict[str, Any]) -> None:
    assert made(**sections).config_digest() != made().config_digest()


def test_a_section_that_says_the_default_changes_no_digest() -> None:
    assert made(levels=[{"key": ["country"], "name": "country"}]).config_digest() == made().config_digest()


@pytest.mark.parametrize(
    ("sections", "problem"),
    [
        ({"input": {"key": ["country"], "grouping_sets": [["region"]]}}, 'input.grouping_sets: "region" is no part'),
        ({"input": {"key": ["country", "city"], "grouping_sets": [["country"]]}}, 'input.key: "city" is in none'),
        ({"input": {"key": ["country"], "grouping_sets": [["country"], ["country"]]}}, "two sets have the same parts"),
        ({"input": {"key": ["country"], "grouping_sets": [["country", "country"]]}}, "names a part twice"),
        ({"input": {"key": [], "grouping_sets": [[]]}}, "there is one grouping"),
        ({"bounds": {"max_keys_per_user": 3}}, "bounds.max_keys_per_user: not with input.grouping_sets"),
        ({"window": {"trigger_every": "6h", "rolling": True}}, "window.rolling: not with input.grouping_sets"),
        ({"top": {"limit": 3, "order_by": "count"}}, "top: not with input.grouping_sets"),
        ({"levels": [{"key": ["city"]}]}, "is none of input.grouping_sets"),
        ({"levels": [{"key": []}, {"key": []}]}, "another one with the same key"),
        ({"levels": [{"key": [], "name": "country"}]}, 'two are called "country"'),
        ({"levels": [{"key": ["country"], "max_records_per_user": 2, "max_records_per_key": 3}]}, "use at most that"),
        ({"levels": [{"key": [], "share": 0.6}, {"key": ["country"], "share": 0.5}]}, "nothing is left"),
        ({"input": {"key": ["country", "city"]}, "levels": [{"key": []}]}, "there is no input.grouping_sets"),
    ],
)
def test_refusals_say_what_to_do(sections: dict[str, Any], problem: str) -> None:
    with pytest.raises((ConfigurationError, ValidationError)) as refused:
        made(**sections)
    assert problem in str(refused.value)


def test_each_level_runs_a_strategy_that_fits_it() -> None:
    strategies = [level.strategy for level in made().plan().levels]
    assert strategies == ["closing", "closing", "toeplitz"]  # the total's key is public
    several = made(levels=[{"key": ["country"], "max_records_per_key": 3}])
    assert [level.strategy for level in several.plan().levels] == ["toeplitz", "closing", "toeplitz"]
    assert several.strategy.feedback  # whoever needs it, the pipeline brings it


# ---- keys ----------------------------------------------------------------------------------------------------------------

PARTS = [(0,), (0, 1), (), (1,)]
NAMES = ["country", "both", "total", "city"]


def test_a_key_of_each_level() -> None:
    keys = LevelKeys(PARTS).of([b'["DE","Bonn"]', b'["DE",null]', b'["DE","Bonn"]'])
    assert keys[0] == [b'["a","DE"]'] * 3
    assert keys[1] == [b'["b","DE","Bonn"]', b'["b","DE",null]', b'["b","DE","Bonn"]']
    assert keys[2] == [b'["c"]'] * 3
    assert keys[3] == [b'["d","Bonn"]', b'["d",null]', b'["d","Bonn"]']


@pytest.mark.parametrize("key", ['"DE"', "1.50", "null", '"],["', '["a","b"]'])
def test_parts_keep_how_they_are_written(key: str) -> None:
    parts = parts_of(key.encode())
    assert b",".join(parts) == key.encode().removeprefix(b"[").removesuffix(b"]")


def test_the_same_value_at_two_levels_is_two_keys_and_two_rows() -> None:
    country, _, _, city = LevelKeys(PARTS).of([b'["X","X"]'])
    assert country != city
    names, keys = PublicKeys(NAMES, PARTS, 2).of([*country, *city])
    assert list(zip(names, keys, strict=True)) == [(b'"country"', b'["X",null]'), (b'"city"', b'[null,"X"]')]


def test_rows_have_all_parts_of_the_key() -> None:
    raw = [b'["DE","Bonn"]', b"[null,1.5]", b'["],","\\"x"]']
    public = PublicKeys(NAMES, PARTS, 2)
    for level, parts in enumerate(PARTS):
        for key, whole in zip(public.of(LevelKeys(PARTS).of(raw)[level])[1], map(json.loads, raw), strict=True):
            assert json.loads(key) == [part if at in parts else None for at, part in enumerate(whole)]
    total, single = PublicKeys(["c", "t"], [(0,), ()], 1).of([b'["a","DE"]', b'["b"]'])
    assert (total, single) == ([b'"c"', b'"t"'], [b'"DE"', b"null"])


def test_what_is_remembered_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = [json.dumps([str(i % 7), i]).encode() for i in range(200)]
    wanted = LevelKeys(PARTS).of(raw)
    monkeypatch.setattr("susurrus.agents.histogram.level_keys._REMEMBERED", 3)
    forgetful = LevelKeys(PARTS)
    assert forgetful.of(raw) == wanted
    assert forgetful.of(raw) == wanted


def test_a_declared_key_is_declared_at_every_level_and_the_total_always() -> None:
    assert declared([b'["DE","Bonn"]', b'["DE","Ulm"]'], PARTS[:3]) == (
        b'["a","DE"]',
        b'["b","DE","Bonn"]',
        b'["b","DE","Ulm"]',
        b'["c"]',
    )
    assert declared([], [(0,), ()]) == (b'["b"]',)


def test_route_drops_only_what_no_level_keeps() -> None:
    """Against the rule of each level by itself, and one level alone keeps more than the other."""
    rng = np.random.default_rng(5)
    caps = [Bounding(max_records=2, max_records_per_key=1), Bounding(max_records=6, max_records_per_key=2)]
    keys = [b'["DE%d",%d]' % (i % 3, i) for i in range(12)]
    user, key = rng.integers(0, 4, 160).astype(np.int32), rng.integers(0, 12, 160).astype(np.int32)
    window, interval = np.sort(rng.integers(7, 9, 160)), np.sort(rng.integers(20, 24, 160))
    names = placements([b'"u%d"' % number for number in range(4)])
    levels: Any = [SimpleNamespace(bounding=one, lists=None) for one in caps]
    stays = EarlyDrop(levels, LevelKeys([(0,), (0, 1)]), SECRET_BYTES).arriving(
        user, names[user], window, interval, key, keys
    )
    wanted = np.zeros(160, np.bool_)
    for bounding, name_of in zip(caps, (b'["a","DE%d"]', b'["b","DE%d",%d]'), strict=True):
        of_level = [name_of % (code % 3, code)[: name_of.count(b"%")] for code in key.tolist()]
        for member in set(zip(user.tolist(), window.tolist(), interval.tolist(), strict=True)):
            rows = [row for row in range(160) if (user[row], window[row], interval[row]) == member]
            rows.sort(key=lambda row: priority(SECRET_BYTES, int(window[row]), b'"u%d"' % user[row], of_level[row]))
            mine: Counter[bytes] = Counter()
            for row in rows:
                kept = mine[of_level[row]] < bounding.max_records_per_key and mine.total() < bounding.max_records
                mine[of_level[row]] += kept
                wanted[row] |= kept
    assert stays.tolist() == wanted.tolist()
    assert 20 < wanted.sum() < 140


# ---- bound -----------------------------------------------------------------------------------------------------------------


def test_levels_are_bounded_as_pipelines_of_their_own_and_memory_changes_no_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each level's increments against a pipeline with that one grouping; then with restarts, spills and hardly any memory."""
    of_levels = [
        {"key": ["url"], "max_records_per_user": 3},
        {"key": [], "max_records_per_user": 4, "max_records_per_key": 4},
    ]
    grouped = bound_services(
        input={"key": ["url"], "grouping_sets": [["url"], []]},
        levels=of_levels,
        bounds={"max_records_per_user": 9, "max_records_per_key": 2},
    )
    log, _ = random_log(4, grouped.config_digest, sizes=30)
    # A level's keys have other hashes than those of a pipeline of its own, and a user's records so another order.
    monkeypatch.setattr(
        capped_level,
        "placements",
        lambda keys: placements([key[5:-1] if key.startswith(b'["a"') else key for key in keys]),
    )
    together = run(grouped, log, tmp_path / "a")
    alone = bound_services(input={"key": ["url"]}, bounds={"max_records_per_user": 3, "max_records_per_key": 2})
    own_log, _ = random_log(4, alone.config_digest, sizes=30)
    found, wanted = released(together), released(run(alone, own_log, tmp_path / "b"))
    of_urls = {(*place, key): of for (*place, key), of in found.items() if key.startswith(b'["a"')}
    assert {(*place, key[5:-1]): of for (*place, key), of in of_urls.items()} == wanted
    totals = [of for (*_, key), of in found.items() if key == b'["b"]']
    assert len(of_urls) + len(totals) == len(found)
    assert 0 < len(totals) < len(of_urls)

    dice = random.Random(7)
    monkeypatch.setattr(UserState, "outgrown", property(lambda state: bool(state._tables) and dice.random() < 0.4))
    crashed = run(grouped, log, tmp_path / "c", seed=3, spill_above=40)
    assert block_bytes(crashed) == block_bytes(together)
    gathered = {name[:3] for commit in crashed.commits for name, _ in commit.puts if name[2:3] == b"g"}
    assert gathered == {b"lag", b"lbg"}  # rows of users, by level


def bound_services(**sections: Any) -> Any:
    configured: Any = settings(
        **{
            "start": {"from": "earliest", "first_window": WINDOW},
            "window": {"length": 4 * HOUR, "trigger_every": HOUR, "allowed_lateness": 2 * HOUR, "origin": WINDOW},
            "columns": [
                {"name": "visits", "kind": "count"},
                {"name": "people", "kind": "users"},
                {"name": "paid", "kind": "sum", "field": "amount", "bound": 50, "grid": 1},
            ],
            "topics": {"by_user_partitions": 4, "bounded_partitions": PARTITIONS},
            **sections,
            "input": {"topic": "raw", "user": "host", **sections["input"]},
        }
    )
    return services_of(configured, sources=2)


# ---- whole pipelines -------------------------------------------------------------------------------------------------------

FOLDER = {"name": "folder", "expression": "split_part(url, '/', 2)"}
GROUPED: dict[str, Any] = {
    "input": {"key": [FOLDER, "url"], "grouping_sets": [["folder"], ["folder", "url"], []]},
    "levels": [
        {"key": ["folder"], "max_records_per_user": 3},
        {"key": ["folder", "url"], "max_records_per_user": 12},
        {"key": [], "share": 0.1},
    ],
    "privacy": {"strategy": None},
}
RECORDS: dict[str, Any] = {
    **GROUPED,
    "columns": [
        {"name": "visits", "kind": "count"},
        {"name": "bytes", "kind": "sum", "field": "bytes", "bound": 20000},
    ],
    "levels": [
        {"key": ["folder"], "max_records_per_user": 12, "max_records_per_key": 12},
        {"key": ["folder", "url"], "max_records_per_user": 12, "max_records_per_key": 3},
        {"key": [], "max_records_per_user": 12, "max_records_per_key": 12},
    ],
    "privacy": {"strategy": "toeplitz"},
}
WITHOUT_SPARE_TIME = {"window": {"trigger_every": "4h"}}


def events_of(kafka: Broker, raw: str) -> list[Event]:
    found = []
    for message in kafka.read_all(raw):
        record = json.loads(message.value())
        record["folder"] = record["url"].split("/")[1] if record["url"].count("/") else ""
        found.append((message.partition(), message.offset(), message.timestamp()[1], record))
    return found


@pytest.fixture(scope="module")
def raw(kafka: Broker, once: Any) -> str:
    topic: str = once("grouping sets", lambda: archive(kafka, 1))
    return topic


REMEMBERS: dict[str, Any] = {**GROUPED, "keys": {"remember": 6}, "window": {"length": "8h"}}


@pytest.mark.parametrize("overrides", [GROUPED, RECORDS, REMEMBERS], ids=["closing", "records", "remembers"])
def test_every_published_number_is_the_references(
    kafka: Broker, raw: str, tmp_path: Path, overrides: dict[str, Any]
) -> None:
    """Each level against a slow program that knows no other level."""
    with Pipeline(kafka, tmp_path, raw, merged(overrides, WITHOUT_SPARE_TIME)) as pipeline:
        ours: Any = pipeline.settings
        pipeline.start()
        pipeline.wait(windows=24 * HOUR // ours.window.length)
        grids = [ours.measured_columns[column.sources[0]].grid for column in ours.layout.published]
        names = [column.column.name for column in ours.layout.published]
        published: dict[str, dict[tuple[int, int, bytes], list[int]]] = defaultdict(dict)
        for message in kafka.read_all(ours.topic("histogram")):
            row = histogram.decode_row(message.value())
            assert row.level is not None
            assert json.loads(message.key())["level"] == row.level
            numbers = [round(row.values[name].estimate / grid) for name, grid in zip(names, grids, strict=True)]
            published[row.level][row.window, row.trigger, canonical(row.key)] = numbers
        events, arity = events_of(kafka, raw), len(ours.input.key)
        for number, level in enumerate(ours.grouping):
            wanted = expected(ours, events, secret=bytes.fromhex(SECRET), epoch=EPOCH, level=number)
            order = [column.sources[0] for column in ours.layout.published]
            keys = {key: PublicKeys(ours.level_names, ours.level_parts, arity).of([key[2]])[1][0] for key in wanted}
            assert published[level.name] == {
                (start, trigger, keys[start, trigger, key]): [numbers[i] for i in order]
                for (start, trigger, key), numbers in wanted.items()
            }
        assert set(published) == {"folder", "folder, url", "total"}
        assert len(published["folder, url"]) > len(published["folder"]) > 6
        with ReleaseReader(ours) as reader:
            found = []
            while not reader.caught_up:
                found += reader.poll(5)
        last = found[-1]
        assert set(last.row_levels or []) == set(last.levels) == set(published)
        assert last.level("total").keys == [[]]
        assert last.level("folder").fields == ("folder",)
        assert list(last.frame().columns["level"]) == sorted(last.row_levels or [], key=list(last.levels).index)
        if overrides is RECORDS:
            other, above, below = (
                last.other("folder", "folder, url"),
                last.level("folder"),
                last.level("folder, url"),
            )
            for row, key in enumerate(other.keys):
                children = below.total("visits", lambda child, key=key: child[0] == key)
                assert (
                    other.columns["visits"].estimate[row] == above.columns["visits"].estimate[row] - children.estimate
                )
                assert other.columns["visits"].std_error[row] == pytest.approx(
                    np.hypot(above.columns["visits"].std_error[row], children.std_error)
                )
        else:
            with pytest.raises(ConfigurationError, match="counts distinct users"):
                last.other("folder", "folder, url")


@pytest.fixture(scope="module")
def undisturbed(kafka: Broker, raw: str, tmp_path_factory: pytest.TempPathFactory) -> Public:
    with Pipeline(kafka, tmp_path_factory.mktemp("undisturbed"), raw, {**GROUPED, **WITHOUT_SPARE_TIME}) as pipeline:
        pipeline.start()
        pipeline.wait()
        return pipeline.public()


@pytest.mark.chaos
@pytest.mark.parametrize("stage", ["bound", "release"])
def test_a_worker_killed_within_a_commit_changes_no_byte(
    kafka: Broker, raw: str, undisturbed: Public, tmp_path: Path, stage: str
) -> None:
    with Pipeline(kafka, tmp_path, raw, {**GROUPED, **WITHOUT_SPARE_TIME, **CRASHING}) as pipeline:
        pipeline.crash_everywhere(stage, 2, THREE_POINTS)
        pipeline.start()
        pipeline.wait()
        assert pipeline.public() == undisturbed
