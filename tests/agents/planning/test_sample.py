"""The same records from every kind of file, and from the raw topic, are one sample: the one that the pipeline's decoder makes."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from susurrus.agents.config.settings import Settings
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.pipelines import settings_from
from susurrus.agents.planning.sample import WIDEST, Sample, read_file
from susurrus.mechanisms.errors import ConfigurationError, SusurrusError

DAY = 86_400_000
START = 807_235_200_000  # 1995-08-01


def settings_with(**sections: Any) -> HistogramSettings:
    base: dict[str, Any] = {
        "pipeline": {"name": "web"},
        "input": {"topic": "raw", "user": "host", "key": ["url"], "time": "time", "time_unit": "s"},
        "window": {"length": "1d", "trigger_every": "1h"},
        "columns": [{"name": "bytes", "kind": "sum", "field": "bytes", "bound": 1000, "grid": 10}],
        "privacy": {"epsilon": 1.0, "delta": 1e-9},
    }
    for name, section in sections.items():
        base[name] = section if isinstance(section, list) else {**base.get(name, {}), **section}
    settings: Settings = settings_from(base)
    return HistogramSettings.of(settings)


RECORDS = [
    {"host": "b", "url": "/1", "time": 807_235_205, "bytes": 40},
    {"host": "a", "url": "/1", "time": 807_235_203, "bytes": 123_456},
    {"host": "b", "url": "/2", "time": 807_235_201, "bytes": -7},
    {"host": "b", "url": "/1", "time": 807_235_201, "bytes": 4.5},
]


def written(tmp_path: Path, form: str, records: list[dict[str, Any]] = RECORDS) -> Path:
    path = tmp_path / f"sample.{form}"
    separator = "\t" if form.startswith("tsv") else ";" if form == "csv" else ","
    if form == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist([{**r, "bytes": float(r["bytes"])} for r in records]), path)
        return path
    if form.startswith("json"):
        text = "".join(json.dumps(record) + "\n\n" for record in records)
    else:
        lines = [records[0].keys(), *(record.values() for record in records)]
        text = "".join(separator.join(map(str, line)) + "\r\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode()) if form.endswith("gz") else text.encode())
    return path


@pytest.mark.parametrize("form", ["jsonl", "jsonl.gz", "csv", "csv.gz", "tsv", "tsv.gz", "parquet"])
def test_every_form_of_file_gives_the_same_sample(form: str, tmp_path: Path) -> None:
    sample = read_file(written(tmp_path, form), settings_with())
    # Users count up in order of their first record; equal times keep the order of the file.
    assert sample.user.tolist() == [0, 0, 0, 1]
    assert [sample.key_names[key] for key in sample.key] == [b'"/2"', b'"/1"', b'"/1"', b'"/1"']
    assert sample.time.tolist() == [START + 1000, START + 1000, START + 5000, START + 3000]
    assert sample.values.tolist() == [[-1], [0], [4], [100]]  # clamped to the bound
    assert (sample.users, sample.read, dict(sample.dropped), sample.timed) == (2, 4, {}, True)
    assert (sample.user.dtype, sample.key.dtype, sample.time.dtype, sample.values.dtype) == tuple(
        map(np.dtype, ("int64", "int32", "int64", "int64"))
    )


def test_a_wide_sample_keeps_values_beyond_the_bound_on_a_finer_grid(tmp_path: Path) -> None:
    records = [*RECORDS, {**RECORDS[0], "bytes": 1e30}]
    sample = read_file(written(tmp_path, "jsonl", records), settings_with(), wide=True)
    assert sample.values[:, 0].tolist() == [-717, 461, 4096, WIDEST, 12_641_894]  # in units of 10 / 1024


def test_bad_and_filtered_records_are_counted_by_reason(tmp_path: Path) -> None:
    path = tmp_path / "sample.jsonl"
    lines = [
        b"{",
        b'{"url": "/", "time": 807235201, "bytes": 40}',
        json.dumps({**RECORDS[0], "bytes": 5}).encode(),
        b'"\xff"',
        json.dumps(RECORDS[0]).encode(),
    ]
    path.write_bytes(b"\n".join(lines))
    sample = read_file(path, settings_with(input={"where": "bytes > 30"}))
    assert (len(sample), sample.users, sample.read) == (1, 1, 5)
    assert dict(sample.dropped) == {"NOT_JSON": 1, "MISSING_USER": 1, "FILTERED": 1, "INVALID_UTF8": 1}


def test_expressions_compute_keys_and_values(tmp_path: Path) -> None:
    settings = settings_with(
        input={"key": [{"name": "page", "expression": "replace(url, '/', 'p')"}], "where": "bytes < 1000"},
        columns=[{"name": "kb", "kind": "sum", "expression": "bytes * 2", "bound": 100, "grid": 1}],
    )
    for form in ("jsonl", "csv", "parquet"):
        sample = read_file(written(tmp_path, form), settings)
        assert [sample.key_names[key] for key in sample.key] == [b'"p2"', b'"p1"', b'"p1"']
        assert sample.values[:, 0].tolist() == [-14, 9, 80]


def test_texts_of_users_are_told_apart_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "sample.csv"
    path.write_text("host,url,time,bytes\n7,200,807235201,1\n007,200,807235201,1.0\n7.0,404,807235201,\n")
    sample = read_file(path, settings_with())
    assert (sample.users, sample.key_names, dict(sample.dropped)) == (2, [b"200"], {"MISSING_VALUE": 1})


def test_rows_of_another_length_and_of_other_bytes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "sample.csv"
    path.write_bytes(b"host,url,time,bytes\na,/,807235201,1\na,/,807235201\n\xff,/,807235201,1\n\nb,/,807235201,1\n")
    sample = read_file(path, settings_with())
    assert (sample.users, sample.read, dict(sample.dropped)) == (2, 4, {"UNDECODABLE": 1, "INVALID_UTF8": 1})


def test_nested_fields_are_columns_with_dots_or_structures(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    settings = settings_with(input={"user": "who.id", "time": "kafka"}, columns=[{"name": "n"}])
    records = [{"who": {"id": 3}, "url": "/"}, {"who": {"id": 4}, "url": None}, {"who": None, "url": "/"}]
    pq.write_table(pa.Table.from_pylist(records), tmp_path / "s.parquet")
    (tmp_path / "s.jsonl").write_text("\n".join(map(json.dumps, records)))
    (tmp_path / "s.csv").write_text("who.id,url\n3,/\n4,\n,/\n")
    for name in ("s.parquet", "s.jsonl", "s.csv"):
        sample = read_file(tmp_path / name, settings)
        assert (sample.users, sample.key_names) == (2, [b'"/"', b"null"])
        assert dict(sample.dropped) == {"MISSING_USER": 1}


def test_a_file_without_times_is_one_window_in_its_order(tmp_path: Path) -> None:
    settings = settings_with(
        input={"time": "kafka"}, start={"from": "earliest", "first_window": "1995-08-01T00:00:00Z"}
    )
    sample = read_file(written(tmp_path, "jsonl"), settings)
    assert not sample.timed
    assert sample.time.tolist() == [START, START + DAY // 2, START + 3 * DAY // 4, START + DAY // 4]
    # ... unless a field is said to be the time.
    timed = read_file(written(tmp_path, "jsonl"), settings, time="time", time_unit="s")
    assert timed.timed
    assert timed.time.max() == START + 5000


def test_many_batches_are_joined(tmp_path: Path) -> None:
    path = tmp_path / "sample.tsv.gz"
    n = 150_000
    with gzip.open(path, "wt") as lines:
        lines.write("host\turl\ttime\tbytes\n")
        lines.writelines(f'h{i % 1000}\t"/{i % 7}\t{807_235_200 + i % 86_000}\t10\n' for i in range(n))
    seen: list[int] = []
    sample = read_file(path, settings_with(), progress=lambda done, total: seen.append(done))
    assert (len(sample), sample.users, len(sample.key_names)) == (n, 1000, 7)
    assert seen == sorted(seen)
    assert seen[-1] == n
    assert np.bincount(sample.user).tolist() == [150] * 1000
    assert ((np.diff(sample.user) > 0) | (np.diff(sample.time) >= 0)).all()


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("absent.csv", None, "No such file"),
        ("sample.txt", b"x", "its name does not say what it is"),
        ("sample.csv", b"host,url\na,/\n", "has no column bytes, time, but host, url"),
        ("empty.csv", b"", "has no column"),
        ("empty.jsonl", b"", "has no records"),
        ("bad.jsonl.gz", b"no gzip", "cannot be read"),
        ("bad.parquet", b"no parquet", "cannot be read"),
        ("other.jsonl", b'{"secret-user": 1}\n', "none of 1 records is good: 1 MISSING_USER"),
    ],
)
def test_what_cannot_be_a_sample_is_refused_in_words(
    name: str, content: bytes | None, says: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(SusurrusError, match=says) as caught:
        read_file(tmp_path / name, settings_with())
    assert "secret-user" not in str(caught.value)
    if "none of" not in says and "no records" not in says:
        assert isinstance(caught.value, ConfigurationError)


def test_the_columns_fit_each_other(tmp_path: Path) -> None:
    sample = read_file(written(tmp_path, "jsonl"), settings_with(columns=[{"name": "n"}]))
    assert isinstance(sample, Sample)
    assert sample.values.shape == (len(sample), 0)
    assert len(sample.user) == len(sample.key) == len(sample.time) == len(sample)


def test_lines_of_a_file_are_taken_apart_and_asked_as_records_are(tmp_path: Path) -> None:
    settings = settings_with(
        input={"key": ["item.url"], "each": {"of": "items", "as": "item"}, "where": "host <> 'bot'"},
        columns=[{"name": "bytes", "kind": "sum", "field": "item.bytes", "bound": 1000, "grid": 10}],
    )
    records = [
        {"host": "a", "time": 807_235_201, "items": [{"url": "/1", "bytes": 10}, {"url": "/2", "bytes": 20}, 5]},
        {"host": "bot", "time": 807_235_201, "items": "none"},
        {"host": "b", "time": 807_235_202, "items": []},
    ]
    sample = read_file(written(tmp_path, "jsonl", records), settings)
    assert [sample.key_names[key] for key in sample.key] == [b'"/1"', b'"/2"']
    assert sample.values.tolist() == [[1], [2]]
    assert dict(sample.dropped) == {"WRONG_TYPE": 1, "FILTERED": 1, "NO_ITEMS": 1}


@pytest.mark.parametrize("name", ["$key", "$headers.user-id", "$envelope.op"])
def test_a_file_has_nothing_beside_values(name: str, tmp_path: Path) -> None:
    envelope = {"envelope": "debezium"} if name.startswith("$envelope") else {}
    with pytest.raises(ConfigurationError, match=re.escape(f"the settings read {name}; read the topic itself")):
        read_file(written(tmp_path, "jsonl"), settings_with(input={"user": name, **envelope}))
