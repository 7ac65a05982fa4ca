"""Where route begins, at the ledger's offsets and at the first record of partitions that joined later; what it drops."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from susurrus.agents.histogram.route import Route
from susurrus.agents.runtime.stage import NotYet
from susurrus.agents.runtime.store import Store
from susurrus.topics import by_user
from susurrus.topics.ledger import Sources, encode
from susurrus.topics.packing import Kind, kind_of
from tests.agents.released import settings
from tests.agents.stages import WINDOW, Runner, services_of

LOG_START = 1_000
"""What retention has left of the raw logs."""


def test_a_raw_partition_that_joined_later_begins_with_its_first_record(tmp_path: Path) -> None:
    """Not where its log happens to begin by now: the task compares, and refuses instead of skipping."""
    services = services_of(settings(start={"from": "earliest", "first_window": WINDOW}), sources=2)
    ledger: Any = services.ledger
    ledger.start.offsets = {0: 40, 1: 70}
    store = Store(tmp_path / "s")
    assert Route(services, 1).restore(store, None, LOG_START) == 70
    with pytest.raises(NotYet, match="announce the new raw partition"):
        Route(services, 3).restore(store, None, LOG_START)
    ledger.records = dict(map(encode, [Sources(number=3, from_interval=5), Sources(number=4, from_interval=9)]))
    joined = Route(services, 3)
    assert joined.restore(store, None, LOG_START) == 0
    assert joined.report()["interval"] == 8
    store.close()


@pytest.mark.parametrize("max_keys", [None, 1])
def test_what_a_cap_on_keys_may_yet_admit_is_not_dropped_where_it_is_read(max_keys: int | None, tmp_path: Path) -> None:
    """Three records of other keys do not use up C where the user's only key is taken: the fourth, of that key, still counts."""
    services = services_of(
        settings(
            input={"topic": "raw", "user": "user", "key": ["key"], "null_key": "value"},
            start={"from": "earliest", "first_window": WINDOW},
            clock={"kind": "broker"},
            bounds={"max_records_per_user": 3, "max_records_per_key": 3, "max_keys_per_user": max_keys},
        )
    )
    records = [
        SimpleNamespace(
            offset=n,
            timestamp=WINDOW + n,
            timestamp_type=1,
            key=None,
            value=json.dumps({"user": "u", "key": key}).encode(),
        )
        for n, key in enumerate(["b", "b", "b", "a"])
    ]
    runner = Runner(Route, services, tmp_path, 0)
    runner.feed(records, 4)
    runner.commit(now=WINDOW)
    blocks = [
        by_user.decode(v) for _, _, _, v, _ in runner.to("by-user") if v is not None and kind_of(v) is not Kind.TICK
    ]
    assert sum(map(len, blocks)) == (3 if max_keys is None else 4)
    assert runner.stage.counters["capped"] == (1 if max_keys is None else 0)
    runner.close()
