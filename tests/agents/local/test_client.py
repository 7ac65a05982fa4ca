"""The client by itself: phases, what may leave the device, bounded memory, and what it imports."""

import json
import logging
import pickle
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from confluent_kafka import TopicPartition

from susurrus.agents.broker.artefacts import KafkaUnavailableError
from susurrus.agents.broker.cluster import KafkaCluster
from susurrus.agents.local.client import ToplClient
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.local.hybrid import Hybrid
from susurrus.mechanisms.local.wave import SquareWave
from susurrus.topics import threshold as threshold_codec
from susurrus.topics.reports import SIZE, decode
from susurrus.topics.threshold import ThresholdRecord
from tests.broker import Broker, give_up

NOWHERE = "127.0.0.1:1"
SECRET_VALUE = 31.41592653589
THRESHOLD = ThresholdRecord(
    version=3,
    theta=40.0,
    epsilon=1.0,
    alpha=0.4,
    reports=1000,
    phase1_epsilon=1.0,
    bound=100.0,
    scale="log",
)


def client_at(servers: str, **options: object) -> ToplClient:
    fields = {"pipeline": "meters", "epsilon": 1.0, "bound": 100.0, "interval": 60_000, "settle": 0.0}
    return ToplClient(servers, **{**fields, **options})  # type: ignore[arg-type]


@pytest.fixture
def offline() -> Iterator[ToplClient]:
    """A client whose brokers never answer."""
    client = client_at(NOWHERE)
    yield client
    client.close(0.0)


def messages_of(broker: Broker, topic: str) -> list[object]:
    with broker.consumer() as consumer:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        assignment = [TopicPartition(topic, number, 0) for number in partitions]
        consumer.assign(assignment)
        wanted = sum(consumer.get_watermark_offsets(tp, timeout=10)[1] for tp in assignment)
        found: list[object] = []
        deadline = time.monotonic() + 30
        while len(found) < wanted and time.monotonic() < deadline:
            found += [message for message in consumer.consume(1000, 0.5) if message.error() is None]
        return found


class TestPhases:
    def test_reports_are_phase_1_before_a_threshold_and_phase_2_after(self, embedded: Broker) -> None:
        prefix = embedded.new_prefix()
        with client_at(embedded.bootstrap_servers, prefix=prefix, properties=CREATE) as client:
            assert client.phase == 1
            for value in (1.0, 2.0):
                assert client.report(value)
            client.report_batch([3.0, 4.0])
            assert client.adopt(THRESHOLD)
            assert (client.phase, client.threshold_version) == (2, 3)
            client.report(5.0)
            client.report_batch(np.array([6.0, 7.0]))
            assert client.flush(30) == 0
        payloads = [message.value() for message in messages_of(embedded, f"{prefix}.meters.reports")]
        reports, good = decode(payloads)
        assert good.all()
        assert sorted(zip(reports.phase.tolist(), reports.threshold_version.tolist(), strict=True)) == [
            *[(1, 0)] * 4,
            *[(2, 3)] * 3,
        ]
        assert (reports.interval % 60_000 == 0).all()

    def test_the_compacted_topic_switches_the_phase_by_itself(self, embedded: Broker) -> None:
        prefix = embedded.new_prefix()
        with client_at(embedded.bootstrap_servers, prefix=prefix, properties=CREATE) as client:
            producer = embedded.producer()
            producer.produce(f"{prefix}.meters.threshold", b"{nonsense", threshold_codec.CURRENT, partition=0)
            for key, value in threshold_codec.encode(THRESHOLD):
                producer.produce(f"{prefix}.meters.threshold", value, key, partition=0)
            producer.flush(30)
            deadline = time.monotonic() + 30
            while client.phase == 1 and time.monotonic() < deadline:
                time.sleep(0.05)
            assert client.threshold_version == 3

    @pytest.mark.parametrize(
        "changes",
        [{"epsilon": 8.0}, {"bound": 1000.0}, {"theta": 100.5}, {"scale": "linear"}],
        ids=lambda changes: next(iter(changes)),
    )
    def test_a_threshold_for_another_promise_is_ignored(self, offline: ToplClient, changes: dict[str, object]) -> None:
        """A server cannot make a device report with a larger epsilon, or outside its own bound."""
        fields = {name: getattr(THRESHOLD, name) for name in ThresholdRecord.__dataclass_fields__}
        assert not offline.adopt(ThresholdRecord(**{**fields, **changes}))  # type: ignore[arg-type]
        assert offline.phase == 1

    @pytest.mark.parametrize("share", [0.0, 0.5])
    def test_every_value_goes_through_one_randomiser_at_the_devices_own_epsilon(
        self, offline: ToplClient, share: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One by one and in batches, in both phases: whatever is queued comes from these calls."""
        used: list[tuple[float, float, float]] = []
        made: list[int] = []

        def watch(randomiser: type[SquareWave | Hybrid], name: str) -> None:
            real = getattr(randomiser, name)

            def watched(self: SquareWave | Hybrid, values: Any, *words: Any) -> Any:
                whole = getattr(self, "bound", 1.0)
                codes = real(self, values, *words)
                shares = np.atleast_1d(values) / whole * (1.0 if isinstance(self, SquareWave) else 0.4)
                used.extend((self.epsilon, getattr(self, "alpha", -1.0), float(each)) for each in shares)
                made.extend(np.atleast_1d(codes).tolist())
                return codes

            monkeypatch.setattr(randomiser, name, watched)

        for randomiser in (SquareWave, Hybrid):
            for name in ("randomise", "randomise_one"):
                watch(randomiser, name)
        queued: list[bytes] = []
        monkeypatch.setattr(offline._connection, "send", lambda reports: queued.extend(reports) or len(reports))
        fields = {name: getattr(THRESHOLD, name) for name in ThresholdRecord.__dataclass_fields__}
        values = [1.0, 5.0, 12.5, 20.0, 39.0]
        for phase in (1, 2):
            if phase == 2:
                assert offline.adopt(ThresholdRecord(**{**fields, "phase1_share": share}))
            used.clear(), made.clear(), queued.clear()
            for value in values:
                offline.report(value)
            offline.report_batch(values)
            assert {epsilon for epsilon, _, _ in used} == {1.0}
            kinds = {alpha for _, alpha, _ in used}
            assert kinds <= {-1.0, 0.4} if phase == 2 and share else kinds == ({-1.0} if phase == 1 else {0.4})
            assert sorted(each for _, _, each in used) == pytest.approx(sorted([value / 100 for value in values] * 2))
            reports, good = decode(queued)
            assert good.all()
            assert sorted(reports.code.tolist()) == sorted(made)

    def test_an_older_threshold_does_not_come_back(self, offline: ToplClient) -> None:
        fields = {name: getattr(THRESHOLD, name) for name in ThresholdRecord.__dataclass_fields__}
        assert offline.adopt(THRESHOLD)
        assert not offline.adopt(ThresholdRecord(**{**fields, "version": 2}))
        assert offline.threshold_version == 3

    def test_the_asked_share_stays_phase_1(self, embedded: Broker) -> None:
        prefix = embedded.new_prefix()
        fields = {name: getattr(THRESHOLD, name) for name in ThresholdRecord.__dataclass_fields__}
        with client_at(embedded.bootstrap_servers, prefix=prefix, properties=CREATE) as client:
            client.adopt(ThresholdRecord(**{**fields, "phase1_share": 0.25}))
            client.report_batch(np.full(4000, 5.0))
            for _ in range(1000):
                client.report(5.0)
            assert client.flush(30) == 0
        reports, _ = decode([message.value() for message in messages_of(embedded, f"{prefix}.meters.reports")])
        assert np.count_nonzero(reports.phase == 1) == pytest.approx(1250, abs=200)


CREATE = {"allow.auto.create.topics": True}


class TestNothingElseLeavesTheDevice:
    def test_records_hold_a_report_and_nothing_more(self, embedded: Broker) -> None:
        prefix = embedded.new_prefix()
        with client_at(embedded.bootstrap_servers, prefix=prefix, properties=CREATE) as client:
            client.report(SECRET_VALUE)
            client.report_batch([SECRET_VALUE] * 50)
            client.flush(30)
        found = messages_of(embedded, f"{prefix}.meters.reports")
        assert len(found) == 51
        for message in found:
            assert (message.key(), message.headers(), len(message.value())) == (None, None, SIZE)

    @pytest.mark.parametrize(
        "value", ["31.41592653589 kWh", None, [31.41592653589], float("nan"), float("inf"), 10**400]
    )
    def test_errors_do_not_say_the_value(self, offline: ToplClient, value: object) -> None:
        for call in (offline.report, lambda v: offline.report_batch([v])):
            with pytest.raises(ValueError, match="finite") as caught:
                call(value)  # type: ignore[operator]
            error = caught.value
            assert error.__context__ is None
            assert error.__cause__ is None
            text = "".join(traceback.format_exception_only(error)) + repr(error.args)
            assert "31.4" not in text
            assert "kWh" not in text

    def test_logs_and_representations_do_not_say_it(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        given: list[str | None] = []
        client = client_at(NOWHERE, max_queue=2, give_up=0.2, on_delivery=given.append)
        with pytest.raises(ValueError, match="finite"):
            client.report("31.41592653589 kWh")  # type: ignore[arg-type]
        for _ in range(5):
            client.report(SECRET_VALUE)
        deadline = time.monotonic() + 20
        while len(given) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        client.close(0.0)
        everything = repr([client, client.counts, given, vars(client), vars(client._connection)]) + caplog.text
        assert "31.4" not in everything
        assert given == ["_MSG_TIMED_OUT"] * 2

    def test_the_state_of_a_client_keeps_no_value(self, offline: ToplClient) -> None:
        offline.report(SECRET_VALUE)
        offline.report_batch([SECRET_VALUE] * 3)
        of_threads = ("_producer", "_consumer", "_thread", "_lock", "_settled", "_stopping", "_words", "_connection")
        state = {**vars(offline), **vars(offline._connection)}
        plain = {name: value for name, value in state.items() if not name.startswith(of_threads)}
        assert b"31.4" not in pickle.dumps(repr(plain).encode())

    def test_equal_values_give_unequal_reports(self, embedded: Broker) -> None:
        """Randomness of its own for every report: a repeated draw would be recognised."""
        prefix = embedded.new_prefix()
        with client_at(embedded.bootstrap_servers, prefix=prefix, properties=CREATE) as client:
            client.report_batch(np.full(500, 5.0))
            for _ in range(500):
                client.report(5.0)
            client.flush(30)
        reports, _ = decode([message.value() for message in messages_of(embedded, f"{prefix}.meters.reports")])
        assert len(set(reports.code.tolist())) == 1000


class TestBoundedAndOrderly:
    def test_a_full_queue_drops_and_says_so(self) -> None:
        client = client_at(NOWHERE, max_queue=10)
        assert [client.report(1.0) for _ in range(12)] == [True] * 10 + [False] * 2
        assert client.report_batch([1.0] * 5) == 0
        counts = client.counts
        assert (counts.accepted, counts.waiting, counts.dropped) == (10, 10, 7)
        assert client.close(0.0) == 10
        # Taken back: a report that arrived after its device had been notified of its failure would be made twice.
        assert (client.counts.failed, client.counts.waiting) == (10, 0)

    def test_or_waits_for_room(self, embedded: Broker) -> None:
        options = {"prefix": embedded.new_prefix(), "properties": CREATE, "max_queue": 50, "when_full": "wait"}
        with client_at(embedded.bootstrap_servers, **options) as client:
            assert client.report_batch([1.0] * 2000) == 2000
            assert all(client.report(1.0) for _ in range(200))
            assert client.flush(30) == 0
            assert client.counts.acknowledged == 2200

    def test_many_threads_may_report(self, embedded: Broker) -> None:
        with client_at(embedded.bootstrap_servers, prefix=embedded.new_prefix(), properties=CREATE) as client:
            threads = [threading.Thread(target=lambda: [client.report(1.0) for _ in range(500)]) for _ in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            client.flush(30)
            assert client.counts.acknowledged == client.counts.accepted == 3000

    def test_a_closed_client_refuses(self) -> None:
        client = client_at(NOWHERE)
        client.close(0.0)
        client.close(0.0)
        with pytest.raises(RuntimeError, match="closed"):
            client.report(1.0)

    @pytest.mark.parametrize(
        "options", [{"interval": 0}, {"max_queue": 0}, {"when_full": "pray"}, {"epsilon": 0.0}, {"bound": -1.0}]
    )
    def test_impossible_parameters_are_refused(self, options: dict[str, object]) -> None:
        with pytest.raises(ConfigurationError):
            client_at(NOWHERE, **options)


def test_it_needs_numpy_and_confluent_kafka_only() -> None:
    code = "import sys, susurrus.agents.local.client; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"faust", "aiokafka", "mode", "pydantic", "scipy", "msgspec", "rocksdict", "typer", "cryptography", "rich"}
    assert not heavy & set(loaded)
    listing = (
        "import sys, susurrus.agents.local.client; print(*[n for n in sys.modules if n.startswith('susurrus.agents')])"
    )
    ours = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True).stdout.split()
    agents = {"", ".kafka", ".kafka.follow", ".local", ".local.client", ".local.connection"}
    assert set(ours) == {f"susurrus.agents{name}" for name in agents}


@pytest.fixture
def own_broker() -> Iterator[Broker]:
    """One real broker that only this test uses, and may kill."""
    try:
        with KafkaCluster(brokers=1, heap="256m") as cluster:
            yield Broker(cluster.bootstrap_servers, description="one broker of its own", cluster=cluster)
    except KafkaUnavailableError as missing:
        give_up(f"no broker to kill: {missing}")


CLIENT = """
import json, sys, time
from susurrus.agents.local.client import ToplClient
servers, prefix = sys.argv[1:]
client = ToplClient(servers, prefix=prefix, pipeline="meters", epsilon=1.0, bound=100.0, interval=60000, max_queue=500)
print("ready", flush=True)
until = time.monotonic() + 20
while time.monotonic() < until:
    client.report(3.0)
    time.sleep(0.0005)
# Not ru_maxrss: that of a child begins with its parent's.
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
client.flush(90)
counts = client.counts
print(json.dumps([counts.accepted, counts.acknowledged, counts.failed, counts.dropped, peak]), flush=True)
client.close()
"""


@pytest.mark.chaos
@pytest.mark.broker
@pytest.mark.thorough
def test_an_outage_loses_nothing_that_was_acknowledged(own_broker: Broker) -> None:
    """A real client process; the broker is killed and comes back; what was acknowledged is in the log, once."""
    prefix = own_broker.new_prefix()
    topic = own_broker.create_topic(f"{prefix}.meters.reports", 3)
    command = [sys.executable, "-c", CLIENT, own_broker.bootstrap_servers, prefix]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(3)
        own_broker.kill(1)
        time.sleep(7)
        own_broker.restart(1)
        accepted, acknowledged, failed, dropped, peak = json.loads(process.stdout.readline())
    assert failed == 0
    assert acknowledged == accepted
    assert dropped > 0  # the queue is bounded, and the outage was longer than it
    assert peak < 300_000  # KiB
    assert len(messages_of(own_broker, topic)) == acknowledged
