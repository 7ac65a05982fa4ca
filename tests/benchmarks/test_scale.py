"""The scale benchmark drives the agents' own stages: what it loads is found, published and written as it says."""

import json
from collections.abc import Iterator

import pytest
import scale

from susurrus.agents.histogram.intervals import ordered


def test_stages_hand_every_event_on_and_fan_out_makes_more_records():
    rows = list(scale.stages(6_000, triggers=4))
    assert [row["stage"] for row in rows] == ["route", "bound", "release"]
    assert [row["rows_in"] for row in rows[:2]] == [6_000, 6_000]
    assert 0 < rows[2]["rows_in"] < 6_000  # aggregated per key and interval
    assert rows[0]["changelog_bytes_per_event"] < rows[1]["changelog_bytes_per_event"]
    assert rows[2]["out_records"] > 0


def test_published_keys_are_published_and_new_ones_are_not():
    stored, published, touched = 3_000, 400, 100
    (row,) = scale.release(stored, published, [touched])
    assert row["published_rows"] == published
    (new,) = scale.release(stored, 0, [touched], fresh=True)
    assert new["fresh"]
    assert new["published_rows"] == 0


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[scale.Loaded]:
    """A thousand stored keys, and a trigger that touches one of them and brings a new one."""
    made = scale.Loaded(1_000, 0, tmp_path_factory.mktemp("loaded"))
    made.trigger([7, 10**9])
    yield made
    made.task.store.close()


@pytest.mark.parametrize(("key", "users"), [(7, 2), (8, 1), (10**9, 1)], ids=["touched", "stored", "new"])
def test_touched_keys_are_the_stored_ones(loaded: scale.Loaded, key: int, users: int):
    table = b"s" + ordered(loaded.services.ledger.first_window)
    row = loaded.task.store.get_one(table + scale.names_of([key])[0])
    assert row is not None
    assert loaded.services.strategy.unpack([row[4:]]).users.tolist() == [users]


def test_a_size_is_a_line_of_json(capsys: pytest.CaptureFixture[str]):
    assert scale.main(["--only", "release", "--stored", "500", "--quick", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["stored_keys"], line["touched_keys"]) for line in lines] == [(500, 100), (500, 500)]
