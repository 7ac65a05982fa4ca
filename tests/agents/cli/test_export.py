"""Exported files: the same rows in every format, whole or not at all."""

import csv
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from susurrus.agents.cli.export import export, records
from susurrus.mechanisms.errors import SusurrusError
from susurrus.topics.histogram import Measured, MeasuredColumn
from tests.agents.cli.test_tables import snapshot

FOUND = snapshot({b'"/a,b\\n\\"c\\""': 12, b'"\xc3\xbc"': 3}, std_error=2.5)


def test_records_carry_key_fields_and_errors() -> None:
    first = records(FOUND, ("url",))[0]
    assert first == {
        "window_start": "1995-08-01T00:00:00Z",
        "window_end": "1995-08-02T00:00:00Z",
        "trigger": 2,
        "of_triggers": 4,
        "key": '"/a,b\\n\\"c\\""',
        "url": '/a,b\n"c"',
        "visits": 12,
        "visits_std_error": 2.5,
        "strategy": "toeplitz",
        "epoch": "ab" * 16,
    }


def test_a_direct_pair_follows_the_estimate_in_every_format(tmp_path: Path) -> None:
    pair = MeasuredColumn(estimate=12, std_error=2.5, direct=Measured(estimate=15, std_error=8.0))
    rows = [msgspec.structs.replace(row, values={"visits": pair}) for row in FOUND.rows]
    found = replace(FOUND, rows=rows)
    columns = {"visits": 12, "visits_std_error": 2.5, "visits_direct": 15, "visits_direct_std_error": 8.0}
    record = records(found, ("url",))[0]
    assert list(record.items())[6:10] == list(columns.items())
    export(found, "jsonl", tmp_path / "h.jsonl", ("url",))
    line = json.loads((tmp_path / "h.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert {name: line[name] for name in columns} == columns
    export(found, "csv", tmp_path / "h.csv", ("url",))
    with (tmp_path / "h.csv").open(encoding="utf-8", newline="") as file:
        assert next(csv.DictReader(file))["visits_direct"] == "15"


def test_composite_keys_become_a_column_each() -> None:
    found = snapshot({b'["x",1]': 2})
    assert {name: records(found, ("a", "b"))[0][name] for name in ("key", "a", "b")} == {
        "key": '["x",1]',
        "a": "x",
        "b": "1",
    }


def test_a_field_called_like_a_column_does_not_overwrite_it() -> None:
    assert records(FOUND, ("visits",))[0]["visits"] == 12
    assert records(FOUND, ("trigger",))[0]["trigger"] == 2


def test_csv_and_jsonl_read_back(tmp_path: Path) -> None:
    assert export(FOUND, "csv", tmp_path / "h.csv", ("url",)) == 2
    with (tmp_path / "h.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["url"], row["visits"]) for row in rows] == [('/a,b\n"c"', "12"), ("ü", "3")]
    export(FOUND, "jsonl", tmp_path / "h.jsonl", ("url",))
    lines = (tmp_path / "h.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["key"] for line in lines] == ['/a,b\n"c"', "ü"]


def test_parquet_reads_back(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    export(FOUND, "parquet", tmp_path / "h.parquet", ("url",))
    table = parquet.read_table(tmp_path / "h.parquet").to_pylist()
    assert table == records(FOUND, ("url",))


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SusurrusError, match=r"susurrus\[parquet\]"):
        export(FOUND, "parquet", tmp_path / "h.parquet", ("url",))
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(SusurrusError, match="cannot be written"):
        export(FOUND, "csv", tmp_path / "none" / "h.csv", ("url",))
    (tmp_path / "h.csv").write_text("before")
    export(FOUND, "csv", tmp_path / "h.csv", ("url",))
    assert os.listdir(tmp_path) == ["h.csv"]


def test_standard_output_takes_text_only(capsys: pytest.CaptureFixture[str]) -> None:
    export(FOUND, "jsonl", Path("-"), ("url",))
    assert len(capsys.readouterr().out.splitlines()) == 2
    with pytest.raises(SusurrusError, match="binary"):
        export(FOUND, "parquet", Path("-"), ("url",))


def test_an_empty_trigger_exports_no_rows(tmp_path: Path) -> None:
    for form in ("csv", "jsonl"):
        assert export(snapshot({}), form, tmp_path / form, ("url",)) == 0  # type: ignore[arg-type]
