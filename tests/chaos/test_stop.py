"""SIGTERM ends a worker in whatever state it is, in order where Kafka answers, and by the last resort where it does not."""

import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from susurrus.agents.broker.network import free_ports
from tests.broker import Broker, wait_for
from tests.chaos.test_refusals import SMALL, raw_topic
from tests.pipeline import Pipeline, Public, Worker
from tests.waiting import PATIENCE

pytestmark = pytest.mark.chaos

STOPPING: dict[str, Any] = {"worker": {"stop_timeout": "15s"}}
"""Far above stop_timeout: whether an end comes at all, not when."""
IN_ORDER = 0
LATE = 128 + signal.SIGTERM
NOT_IN_TIME = "not ended in time"


def asks_kafka(worker: Worker) -> bool:
    """Whether the process has a Kafka client at work, by the names of its threads."""
    threads = Path(f"/proc/{worker.process.pid}/task")
    try:
        return any((thread / "comm").read_text().startswith("rdk:") for thread in threads.iterdir())
    except OSError:
        return False


def says(worker: Worker, text: str) -> bool:
    return text in worker.log.read_text(errors="replace")


def ended(worker: Worker) -> int:
    """The exit code of the end; that it came in order or not, as the log says."""
    try:
        code = worker.process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        worker.signal(signal.SIGUSR1)
        raise AssertionError(f"still there\n{worker.tail()}") from None
    assert code in (IN_ORDER, LATE), worker.tail()
    assert (code == LATE) == says(worker, NOT_IN_TIME), worker.tail()
    return code


def test_while_kafka_does_not_answer_at_the_start(lone_broker: Broker, tmp_path: Path) -> None:
    raw = raw_topic(lone_broker)
    with Pipeline(lone_broker, tmp_path, raw, SMALL | STOPPING) as pipeline:
        lone_broker.pause(1)
        try:
            worker = pipeline.start()
            wait_for(lambda: asks_kafka(worker), "the worker asks Kafka")
            worker.signal(signal.SIGTERM)
            ended(worker)
        finally:
            lone_broker.resume(1)


def test_while_nothing_listens_at_the_brokers_address(kafka: Broker, tmp_path: Path) -> None:
    [nobody] = free_ports(1)
    with Pipeline(kafka, tmp_path, raw_topic(kafka), SMALL | STOPPING) as pipeline:
        worker = pipeline.start(SUSURRUS__KAFKA__BOOTSTRAP_SERVERS=f"127.0.0.1:{nobody}")
        wait_for(lambda: asks_kafka(worker), "the worker looks for Kafka")
        worker.signal(signal.SIGTERM)
        ended(worker)


def test_while_it_waits_for_the_group(kafka: Broker, tmp_path: Path) -> None:
    """A member that is frozen holds the rebalance up until its session is over."""
    patient = {"worker": {**STOPPING["worker"], "session_timeout": "60s"}}
    with Pipeline(kafka, tmp_path, raw_topic(kafka), SMALL | patient) as pipeline:
        frozen = pipeline.start()
        pipeline.wait()
        frozen.signal(signal.SIGSTOP)
        worker = pipeline.start()
        wait_for(lambda: says(worker, " starts (pid "), "the worker joins")
        worker.signal(signal.SIGTERM)
        ended(worker)
        assert not says(worker, "of the group")
        frozen.signal(signal.SIGCONT)


def test_while_its_tasks_are_refused_and_about_to_try_again(kafka: Broker, tmp_path: Path) -> None:
    with Pipeline(kafka, tmp_path, raw_topic(kafka), SMALL | STOPPING) as pipeline:
        with pipeline.held() as worker:
            kafka.delete_topic(pipeline.settings.topic("bound-changelog"))
        wait_for(lambda: says(worker, "bound-0 refuses"), "a task refuses")
        worker.signal(signal.SIGTERM)
        assert ended(worker) == IN_ORDER


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_under_load_in_order_however_often_it_is_signalled(
    kafka: Broker, raw: str, undisturbed: Public, tmp_path: Path, number: signal.Signals
) -> None:
    with Pipeline(kafka, tmp_path, raw, {"worker": {"fetch_bytes": 65_536}}) as pipeline:
        worker = pipeline.start(SUSURRUS_CRASH_AT=f"route:after-begin:3:{number.name}")
        wait_for(lambda: says(worker, "tasks finish their commits"), "it stops")
        worker.signal(number)
        assert ended(worker) == IN_ORDER
        assert sum(pipeline.progress().values()) < 24 * 4, "it stopped too late to matter"
        pipeline.start()
        pipeline.wait()
        assert pipeline.public() == undisturbed


@pytest.mark.campaign
@pytest.mark.parametrize("outage", ["killed", "paused"])
def test_in_the_midst_of_commits_while_kafka_is_away(
    lone_broker: Broker, lone_raw: str, undisturbed: Public, tmp_path: Path, outage: str
) -> None:
    with Pipeline(
        lone_broker, tmp_path, lone_raw, {"worker": {"fetch_bytes": 65_536, "stop_timeout": "15s"}}
    ) as pipeline:
        worker = pipeline.start(SUSURRUS_CRASH_AT="route:after-begin:3:SIGSTOP")
        worker.wait_until_frozen()
        if outage == "killed":
            lone_broker.kill(1)
        else:
            lone_broker.pause(1)
        worker.signal(signal.SIGTERM)
        worker.signal(signal.SIGCONT)
        ended(worker)
        if outage == "killed":
            lone_broker.restart(1)
        else:
            lone_broker.resume(1)
        pipeline.start()
        pipeline.wait()
        assert pipeline.public() == undisturbed
