"""Exported files: the same rows in every format, whole or not at all."""

import csv
import json
import os
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from susurrus.agents.cli.export import Format, Record, export
from susurrus.agents.histogram.estimates import Release
from susurrus.agents.histogram.view import HistogramView
from susurrus.mechanisms.errors import SusurrusError
from tests.agents.histogram.test_terminal_table import snapshot

FOUND = snapshot({b'"/a,b\\n\\"c\\""': 12, b'"\xc3\xbc"': 3}, std_error=2.5)


def records(found: Release, *fields: str) -> list[Record]:
    return replace(found, fields=fields or found.fields).exported().rows()


def write(rows: list[Record], form: Format, output: Path) -> int:
    return export(rows, form, output, instants=HistogramView.instants)


def test_records_carry_key_fields_and_errors() -> None:
    first = records(FOUND)[0]
    assert first == {
        "window_start": "1995-08-01T00:00:00Z",
        "window_end": "1995-08-02T00:00:00Z",
        "trigger": 2,
        "of_triggers": 4,
        "trigger_time": "1995-08-01T12:00:00Z",
        "key": '"/a,b\\n\\"c\\""',
        "url": '/a,b\n"c"',
        "visits": 12,
        "visits_std_error": 2.5,
        "strategy": "toeplitz",
        "epoch": "ab" * 16,
    }


def test_a_direct_pair_follows_the_estimate_in_every_format(tmp_path: Path) -> None:
    visits = FOUND.columns["visits"]
    pair = replace(visits, direct=(visits.estimate + 3, np.full(2, 8.0)))
    found = replace(FOUND, columns={"visits": pair})
    columns = {"visits": 12, "visits_std_error": 2.5, "visits_direct": 15, "visits_direct_std_error": 8.0}
    record = records(found)[0]
    assert list(record.items())[7:11] == list(columns.items())
    write(records(found), "jsonl", tmp_path / "h.jsonl")
    line = json.loads((tmp_path / "h.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert {name: line[name] for name in columns} == columns
    write(records(found), "csv", tmp_path / "h.csv")
    with (tmp_path / "h.csv").open(encoding="utf-8", newline="") as file:
        assert next(csv.DictReader(file))["visits_direct"] == "15"


def test_composite_keys_become_a_column_each() -> None:
    found = snapshot({b'["x",1]': 2})
    assert {name: records(found, "a", "b")[0][name] for name in ("key", "a", "b")} == {
        "key": '["x",1]',
        "a": "x",
        "b": 1,
    }


@pytest.mark.parametrize("name", ["visits", "visits_std_error", "trigger", "strategy"])
def test_a_field_called_like_a_column_does_not_overwrite_it(name: str) -> None:
    usual, record = records(FOUND)[0], records(FOUND, name)[0]
    assert record.pop(f"key_{name}") == usual.pop("url")
    assert record == usual


def test_csv_and_jsonl_read_back(tmp_path: Path) -> None:
    assert write(records(FOUND), "csv", tmp_path / "h.csv") == 2
    with (tmp_path / "h.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["url"], row["visits"]) for row in rows] == [('/a,b\n"c"', "12"), ("ü", "3")]
    write(records(FOUND), "jsonl", tmp_path / "h.jsonl")
    lines = (tmp_path / "h.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["key"] for line in lines] == ['/a,b\n"c"', "ü"]


def parquet_of(found: Release, fields: tuple[str, ...], file: Path) -> Any:
    parquet = pytest.importorskip("pyarrow.parquet")
    write(records(found, *fields), "parquet", file)
    return parquet.read_table(file)


def test_parquet_has_real_timestamps(tmp_path: Path) -> None:
    table = parquet_of(FOUND, ("url",), tmp_path / "h.parquet")
    instants = ("window_start", "window_end", "trigger_time")
    assert {str(table.schema.field(name).type) for name in instants} == {"timestamp[ms, tz=UTC]"}
    rows = table.to_pylist()
    assert rows[0]["trigger_time"] == datetime(1995, 8, 1, 12, tzinfo=UTC)
    text = [{name: f"{row[name]:%Y-%m-%dT%H:%M:%SZ}" for name in instants} for row in rows]
    assert [row | instant for row, instant in zip(rows, text, strict=True)] == records(FOUND)


@pytest.mark.parametrize(
    ("parts", "kind", "wanted"),
    [
        (["1", "null", "-2"], "int64", [1, None, -2]),
        (["18446744073709551615"], "uint64", [2**64 - 1]),
        (["1", "2.5"], "double", [1.0, 2.5]),
        (["true", "false"], "bool", [True, False]),
        (['"1"', "null"], "string", ["1", None]),
        (["null"], "string", [None]),
        (['"a"', "1", "true", "null"], "string", ["a", "1", "true", None]),
        (["9007199254740993", "2.5"], "string", ["9007199254740993", "2.5"]),
    ],
)
def test_a_part_of_a_key_has_its_own_type_in_parquet(
    tmp_path: Path, parts: list[str], kind: str, wanted: list[object]
) -> None:
    found = snapshot({f'["x",{part}]'.encode(): 2 for part in parts})
    table = parquet_of(found, ("a", "b"), tmp_path / "h.parquet")
    assert (str(table.schema.field("b").type), table["b"].to_pylist()) == (kind, wanted)
    assert [json.loads(key)[1] for key in table["key"].to_pylist()] == [json.loads(part) for part in parts]


def test_csv_has_the_parts_as_text(tmp_path: Path) -> None:
    write(records(snapshot({b'["x",true]': 2, b'["x",null]': 2}), "a", "b"), "csv", tmp_path / "h.csv")
    with (tmp_path / "h.csv").open(encoding="utf-8", newline="") as file:
        assert [(row["a"], row["b"], row["key"]) for row in csv.DictReader(file)] == [
            ("x", "true", '["x",true]'),
            ("x", "", '["x",null]'),
        ]


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SusurrusError, match=r"susurrus\[parquet\]"):
        write(records(FOUND), "parquet", tmp_path / "h.parquet")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(SusurrusError, match="cannot be written"):
        write(records(FOUND), "csv", tmp_path / "none" / "h.csv")
    (tmp_path / "h.csv").write_text("before")
    write(records(FOUND), "csv", tmp_path / "h.csv")
    assert os.listdir(tmp_path) == ["h.csv"]


def test_standard_output_takes_text_only(capsys: pytest.CaptureFixture[str]) -> None:
    write(records(FOUND), "jsonl", Path("-"))
    assert len(capsys.readouterr().out.splitlines()) == 2
    with pytest.raises(SusurrusError, match="binary"):
        write(records(FOUND), "parquet", Path("-"))


def test_an_empty_trigger_exports_no_rows(tmp_path: Path) -> None:
    for form in ("csv", "jsonl"):
        assert write(records(snapshot({})), form, tmp_path / form) == 0  # type: ignore[arg-type]
    assert parquet_of(snapshot({}), ("url",), tmp_path / "h.parquet").num_rows == 0
