"""All of Kafka is away for longer than sessions, transactions and most time-outs last: the workers stay, and go on after it."""

import random
import signal
import time
from pathlib import Path

import pytest

from tests.broker import Broker
from tests.chaos.conftest import LOAD, same_archive
from tests.pipeline import SEEDS, Pipeline, Public

pytestmark = [pytest.mark.chaos, pytest.mark.campaign]

AWAY_SECONDS = 40.0


@pytest.mark.parametrize("outage", ["killed", "paused"])
def test_an_outage_of_kafka_changes_no_byte_and_needs_no_operator(
    lone_broker: Broker, lone_raw: str, undisturbed: Public, tmp_path: Path, outage: str
) -> None:
    with Pipeline(lone_broker, tmp_path, lone_raw, {"worker": {"fetch_bytes": 65_536}}) as pipeline:
        # Each worker freezes inside a commit, the second one after it has taken over from the first. Then Kafka goes away.
        workers = []
        for _ in range(2):
            workers.append(pipeline.start(SUSURRUS_CRASH_AT="route:after-begin:3:SIGSTOP"))
            workers[-1].wait_until_frozen()
        published = sum(pipeline.progress().values())
        if outage == "killed":
            lone_broker.kill(1)
        else:
            lone_broker.pause(1)
        for worker in workers:
            worker.signal(signal.SIGCONT)
        time.sleep(AWAY_SECONDS)
        if outage == "killed":
            lone_broker.restart(1)
        else:
            lone_broker.resume(1)
        last = pipeline.settings.topics.bounded_partitions * pipeline.settings.triggers
        assert published < last, "the outage came too late to matter"
        pipeline.wait()
        ended = [worker.tail(30_000) for worker in workers if worker.process.poll() is not None]
        assert not ended, "\n".join(ended)
        assert pipeline.public() == undisturbed


@pytest.mark.parametrize("seed", SEEDS)
def test_kafka_that_comes_and_goes_changes_no_byte(
    lone_broker: Broker, loaded_raw: str, loaded_undisturbed: Public, tmp_path: Path, seed: int
) -> None:
    """Away at any moment of starting, recovering and committing; workers that end meanwhile are started again by their keeper."""
    dice, raw = random.Random(seed), same_archive(lone_broker, loaded_raw, LOAD)
    with Pipeline(lone_broker, tmp_path, raw, {"worker": {"fetch_bytes": 65_536}}) as pipeline:
        workers = [pipeline.start(), pipeline.start()]
        for turn in range(5):
            time.sleep(dice.uniform(0.5, 6.0))
            if turn % 2:
                lone_broker.pause(1)
                time.sleep(dice.uniform(1.0, 9.0))
                lone_broker.resume(1)
            else:
                lone_broker.kill(1)
                time.sleep(dice.uniform(0.0, 4.0))
                lone_broker.restart(1)
            for place, worker in enumerate(workers):
                if (code := worker.process.poll()) is not None:
                    # librdkafka may crash where its broker goes away (docs/known-limits.md). That is a kill -9 to the pipeline.
                    assert code == 1 or worker.crashed_outside_python(), worker.tail()
                    workers[place] = pipeline.start()
        pipeline.wait()
        assert pipeline.public() == loaded_undisturbed
