"""A statement runs: its workers publish, byte for byte, what those of the equal TOML file publish."""

import copy
import json
from pathlib import Path
from typing import Any

from tests.broker import Broker
from tests.pipeline import Pipeline, Public, archive_topic, produce

WINDOW = 807_235_200_000  # 1995-08-01T00:00:00Z
HOUR = 3_600_000
STATEMENT = """
-- a filter, a computed key and a computed value
SELECT WITH DIFFERENTIAL_PRIVACY
  OPTIONS(epsilon = 6, delta = 1e-9, privacy_unit_column = host, max_groups_contributed = 8, strategy = toeplitz)
  split_part(url, '?', 1) AS path, COUNT(*) AS visits, SUM(bytes / 1000 CLAMPED BETWEEN 0 AND 100) AS kilobytes
FROM "{raw}" WHERE status = 200
GROUP BY path, TUMBLE(ROWTIME, INTERVAL '30' MINUTE) EMIT EVERY INTERVAL '15' MINUTE
"""
WHAT: dict[str, Any] = {
    "input": {
        "user": "host",
        "key": [{"name": "path", "expression": "split_part(url, '?', 1)"}],
        "where": "status = 200",
    },
    "window": {"length": "30m", "trigger_every": "15m"},
    "bounds": {"max_records_per_user": 8, "max_records_per_key": 1},
    "columns": [
        {"name": "visits", "kind": "count"},
        {"name": "kilobytes", "kind": "sum", "expression": "bytes / 1000", "bound": 100, "lower": 0},
    ],
    "privacy": {"epsilon": 6, "delta": 1e-9, "strategy": "toeplitz"},
}
HOW: dict[str, Any] = {
    "clock": {"until": "1995-08-01T01:00:00Z"},
    "topics": {"by_user_partitions": 2, "bounded_partitions": 2},
}


def published(pipeline: Pipeline, *options: str) -> tuple[Public, dict[str, int]]:
    worker = pipeline.start(*options)
    pipeline.wait(windows=2)
    assert worker.stop() == 0, worker.tail()
    return pipeline.public(), pipeline.counters()


def test_a_statement_publishes_what_its_toml_publishes(kafka: Broker, tmp_path: Path) -> None:
    raw = archive_topic(kafka, 2)
    events = (
        {
            "host": f"u{n % 97}",
            "url": f"/page {n % 5}?n={n}",
            "bytes": n * 37 % 150_000,
            "status": 404 if n % 4 else 200,
        }
        for n in range(4_000)
    )
    produce(kafka, raw, ((n % 2, json.dumps(e).encode(), WINDOW + n * HOUR // 4_000) for n, e in enumerate(events)))
    with Pipeline(kafka, tmp_path, raw, {**WHAT, **HOW}) as from_toml:
        expected, totals = published(from_toml)
    with Pipeline(kafka, tmp_path, raw, {**WHAT, **HOW}) as from_sql:
        sql = tmp_path / "web.sql"
        sql.write_text(STATEMENT.format(raw=raw), encoding="utf-8")
        common = copy.deepcopy(from_sql.data)
        for section in ("window", "bounds", "columns", "privacy", "input"):
            del common[section]
        settings, from_sql.data = from_sql.data, common
        from_sql.write_config()  # for its workers: only how it runs
        from_sql.data = settings  # for this test, which looks for the topics
        found, _ = published(from_sql, "--sql", str(sql))
    assert sum(map(len, expected["histogram"].values())) >= 4
    assert found == expected
    assert totals["filtered"] == 3_000


def test_a_statement_without_a_key_publishes_one_total(kafka: Broker, tmp_path: Path) -> None:
    raw = archive_topic(kafka, 2)
    events = ({"host": f"u{n % 97}", "url": f"/{n}"} for n in range(970))
    produce(kafka, raw, ((n % 2, json.dumps(e).encode(), WINDOW + n * HOUR // 970) for n, e in enumerate(events)))
    with Pipeline(kafka, tmp_path, raw, {**WHAT, **HOW}) as pipeline:
        sql = tmp_path / "total.sql"
        sql.write_text(
            "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100, delta = 1e-3, privacy_unit_column = host, "
            "max_groups_contributed = 4) COUNT(DISTINCT host) AS people "
            f"FROM \"{raw}\" GROUP BY TUMBLE(ROWTIME, INTERVAL '30' MINUTE) EMIT EVERY INTERVAL '15' MINUTE",
            encoding="utf-8",
        )
        settings = pipeline.data
        pipeline.data = {
            name: of for name, of in settings.items() if name not in ("window", "bounds", "columns", "privacy", "input")
        }
        pipeline.write_config()
        pipeline.data = settings
        found, _ = published(pipeline, "--sql", str(sql))
    rows = [json.loads(value) for part in found["histogram"].values() for _, value, _ in part]
    assert [row["key"] for row in rows] == ["all"] * 4  # two windows of two triggers
    assert [row["trigger"] for row in rows] == [1, 2, 1, 2]
    assert all(abs(row["values"]["people"]["estimate"] - 97) < 6 for row in rows)
    assert all(0 < row["values"]["people"]["std_error"] < 1 for row in rows)


def test_a_lookup_table_is_beside_the_configuration_and_may_not_change(kafka: Broker, tmp_path: Path) -> None:
    raw = archive_topic(kafka, 2)
    events = ({"host": f"u{n % 97}", "code": ["DE", "FR", "??"][n % 3], "country": None} for n in range(970))
    produce(kafka, raw, ((n % 2, json.dumps(e).encode(), WINDOW + n * HOUR // 970) for n, e in enumerate(events)))
    country = {"name": "country", "expression": "lookup('countries.csv', code)"}
    own = {
        "input": {"user": "host", "null_key": "dead-letter"},
        "keys": {"declared": ["Germany", "France", "Norway"], "discover": False},
        "window": WHAT["window"],
        "privacy": {"epsilon": 100, "delta": 1e-3},
    }
    with Pipeline(kafka, tmp_path, raw, {**HOW, **own}) as pipeline:
        table = pipeline.directory / "countries.csv"
        table.write_text("code,name\nDE,Germany\nFR,France\n", encoding="utf-8")
        pipeline.data["input"]["key"] = [country]
        pipeline.write_config()
        found, totals = published(pipeline)
        assert "nanobind" not in pipeline.workers[0].tail()  # which tells of engines that nobody closed
        table.write_text("code,name\nDE,Germany\nFR,Frankreich\n", encoding="utf-8")
        other = pipeline.start()
        assert other.process.wait(60) == 2
        said = " ".join(other.tail().split())
        assert "lookup('countries.csv')" in said
    counts = {"Germany": 0, "France": 0, "Norway": 0}
    for part in found["histogram"].values():
        for _, value, _ in part:
            row = json.loads(value)
            if row["trigger"] == 2:
                counts[row["key"]] += row["values"]["count"]["estimate"]
    # Each of 97 users counts once for each key and window, of which there are two.
    assert abs(counts["Germany"] - 194) < 20
    assert abs(counts["France"] - 194) < 20
    assert abs(counts["Norway"]) < 20
    assert totals["dead_letter"] == 323
