"""A damaged record batch: its partition waits and says why, everything else goes on, and once it is sound again no byte differs."""

import struct
from pathlib import Path

import pytest

from susurrus.agents.operations.status import PartitionStatus, collect
from susurrus.agents.pipelines import pipeline_of
from tests.broker import Broker, wait_for
from tests.pipeline import Pipeline, Public

pytestmark = pytest.mark.chaos

_LENGTH_AT, _HEADER = 8, 12
"""A stored batch: base offset (8 bytes), length of what follows (4 bytes)."""


def flip_a_byte(log: Path, share: float) -> None:
    """Damage, or restore, the last byte of the batch at that share of a segment; the broker serves the file as it is."""
    data = log.read_bytes()
    at = 0
    while True:
        end = at + _HEADER + int(struct.unpack_from(">i", data, at + _LENGTH_AT)[0])
        if end > share * len(data):
            break
        at = end
    with log.open("r+b") as file:
        file.seek(end - 1)
        file.write(bytes([data[end - 1] ^ 0xFF]))


def test_a_damaged_batch_holds_up_its_partition_and_no_worker(
    lone_broker: Broker, lone_raw: str, undisturbed: Public, tmp_path: Path
) -> None:
    assert lone_broker.cluster is not None
    [log] = lone_broker.cluster.directory.glob(f"**/{lone_raw}-0/*.log")
    flip_a_byte(log, 0.6)
    with Pipeline(lone_broker, tmp_path, lone_raw, {"worker": {"fetch_bytes": 65_536}}) as pipeline:
        workers = [pipeline.start(), pipeline.start()]

        def route() -> list[PartitionStatus]:
            return [row for row in collect(pipeline_of(pipeline.settings)).partitions if row.stage == "route"]

        def held_up() -> bool:
            damaged, *others = route()
            return "CorruptRecordException" in str(damaged.finding) and all(row.position == row.end for row in others)

        wait_for(
            held_up,
            "one raw partition that says why it cannot be read, and two that are read to their end",
        )
        assert route()[0].state == "stalled"
        assert route()[0].finding.action.startswith("look at the disk of the partition's leader")
        assert 0 < route()[0].position < route()[0].end
        flip_a_byte(log, 0.6)
        pipeline.wait()
        assert [worker.process.poll() for worker in workers] == [None, None]
        assert pipeline.public() == undisturbed
