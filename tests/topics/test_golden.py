"""Bytes written by an earlier version are still written, and still read: a change needs a new format version."""

import json
import runpy
from pathlib import Path

import pytest

from susurrus.topics import bounded, by_user, changelog, histogram, progress, published_keys, tick

FOLDER = Path(__file__).parents[1] / "golden"
STORED = {name: bytes.fromhex(data) for name, data in json.loads((FOLDER / "topics.json").read_text()).items()}
WRITTEN = runpy.run_path(str(FOLDER / "make_topics.py"))["records"]()
CHUNKS = [data for name, data in STORED.items() if name.startswith("changelog")]


def test_the_formats_are_complete():
    assert list(WRITTEN) == list(STORED)


@pytest.mark.parametrize("name", STORED)
def test_is_written_as_ever(name):
    assert WRITTEN[name] == STORED[name]


@pytest.mark.parametrize(
    "codec", [by_user, bounded, published_keys, tick], ids=["by-user", "bounded", "published-keys", "tick"]
)
def test_is_read_as_ever(codec):
    data = STORED[codec.__name__.rpartition(".")[2].replace("_", "-")]
    assert codec.encode(codec.decode(data)) == data


@pytest.mark.parametrize("codec", [bounded, published_keys], ids=["bounded", "published-keys"])
def test_the_second_version_is_read_as_ever(codec):
    data = STORED[codec.__name__.rpartition(".")[2].replace("_", "-") + " version 2"]
    assert codec.encode(codec.decode(data)) == data


def test_what_the_second_versions_add_is_read_as_ever():
    assert bounded.decode(STORED["bounded version 2"]).lists.tolist() == [[3, 3 << 20, 0], [0, 0, 741_455]]
    feedback = published_keys.decode(STORED["published-keys version 2"])
    assert (feedback.keys, feedback.units.tolist()) == ([b'"/"', b"true", b"7"], [741_455, 1 << 20, 0])


def test_a_commit_is_read_as_ever():
    record = changelog.decode(CHUNKS)
    assert (record.next_position, record.topic_id, record.deletes) == (77, "dGVzdA", [b"m"])
    assert changelog.encode(record, 80) == CHUNKS


def test_rows_are_read_as_ever():
    row = histogram.decode_row(STORED["histogram value"])
    assert (row.key, row.values["visits"].estimate, row.values["mean"].estimate) == (["x", None], 118, 1 / 3)
    assert progress.decode(STORED["progress value"]).of_partitions == 8
