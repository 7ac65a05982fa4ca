"""Where route begins: at the ledger's offsets, and at the first record of partitions that joined later."""

from pathlib import Path
from typing import Any

import pytest

from susurrus.agents.histogram.route import Route
from susurrus.agents.stage import NotYet
from susurrus.agents.store import Store
from susurrus.topics.ledger import Sources
from tests.agents.released import settings
from tests.agents.stages import WINDOW, services_of

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
    ledger.announced = [Sources(number=3, from_slot=5), Sources(number=4, from_slot=9)]
    joined = Route(services, 3)
    assert joined.restore(store, None, LOG_START) == 0
    assert joined.report()["slot"] == 8
    store.close()
