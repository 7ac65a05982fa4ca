"""A worker's log: one line an event, no data, no flood."""

import io
import json
import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from datetime import datetime

import pytest
import typer
from confluent_kafka import KafkaError, KafkaException, Producer

from susurrus.agents import logs
from susurrus.agents.broker.network import free_ports
from susurrus.agents.cli.console import fail as fail_command
from susurrus.agents.kafka.clients import Clients


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What a worker at level info writes; the test's own logging comes back afterwards."""
    yield from _written(monkeypatch, "text")


@pytest.fixture
def objects(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """The same as JSON."""
    yield from _written(monkeypatch, "json")


def _written(monkeypatch: pytest.MonkeyPatch, form: logs.LogFormat) -> Iterator[io.StringIO]:
    stream = io.StringIO()
    root = logging.getLogger()
    handlers, level, shown = root.handlers[:], root.level, warnings.showwarning
    root.handlers[:] = []
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(logging, "raiseExceptions", True)
    with warnings.catch_warnings():
        logs.configure("info", form)
        yield stream
        logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)
    warnings.showwarning = shown


def lines(stream: io.StringIO) -> list[str]:
    """Without the time."""
    return [line.split(" ", 2)[2] for line in stream.getvalue().splitlines()]


def fail(text: str) -> None:
    raise KeyError(text)


def test_an_exception_is_its_type_and_place(written: io.StringIO) -> None:
    try:
        fail("ann visited /clinic")
    except KeyError as error:
        logging.getLogger("susurrus.agents.runtime.task").exception("it failed")
        logging.getLogger("mode").error("Crashed reason=%r", error, exc_info=True)
    [ours, theirs] = lines(written)
    assert ours.startswith("ERROR susurrus.agents.runtime.task: it failed (KeyError at ")
    assert theirs.startswith("ERROR mode: Crashed reason='KeyError' (KeyError at ")
    assert "ann" not in written.getvalue()


def test_a_line_of_json_has_the_fields_of_our_own_lines_and_no_data(objects: io.StringIO) -> None:
    said = {"event": "release", "stage": "release", "partition": 0, "rows": 74, "user": "ann"}
    logging.getLogger("susurrus.agents.runtime.task").info("%s: %d rows", "release-0", 74, extra=said)
    logging.getLogger("aiokafka").error("a\nline", extra={"event": "x", "key": "/clinic"})
    try:
        fail("ann visited /clinic")
    except KeyError:
        logging.getLogger("susurrus").exception("it failed")
    ours, theirs, failed = (json.loads(line) for line in objects.getvalue().splitlines())
    assert datetime.fromisoformat(ours.pop("timestamp")).tzinfo is not None
    assert ours == {
        "level": "INFO", "logger": "susurrus.agents.runtime.task", "message": "release-0: 74 rows",
        "event": "release", "stage": "release", "partition": 0, "rows": 74,
    }  # fmt: skip
    assert set(theirs) == {"timestamp", "level", "logger", "message"}
    assert (theirs["level"], theirs["message"]) == ("WARNING", "a line")  # softened as in a text
    assert failed["message"].startswith("it failed (KeyError at ")
    assert "ann" not in objects.getvalue()


def test_a_failure_of_a_command_is_json_where_the_log_is(objects: io.StringIO) -> None:
    with pytest.raises(typer.Exit) as ended:
        fail_command("Refused", "topic=t: gone\n    kafka-topics.sh --create", 2, verbose=False)
    assert ended.value.exit_code == 2
    [line] = objects.getvalue().splitlines()
    assert json.loads(line)["message"] == "Refused: topic=t: gone kafka-topics.sh --create"


def test_a_line_that_cannot_be_written_does_not_end_the_task_that_writes_it(written: io.StringIO) -> None:
    """Python would print the error with its context, and a KafkaError has no traceback to print."""
    written.close()
    try:
        raise KafkaError(KafkaError._FENCED)  # type: ignore[misc]
    except KafkaError:
        logging.getLogger("susurrus").warning("nobody reads this")


def test_a_record_is_one_line_and_cannot_control_the_terminal(written: io.StringIO) -> None:
    logging.getLogger("susurrus").warning("a\nb\x1b[2Jc")
    assert lines(written) == ["WARNING susurrus: a b?[2Jc"]


def test_what_repeats_is_counted(written: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(logs.time, "monotonic", lambda: now[0])
    log = logging.getLogger("susurrus.agents.runtime.task")
    for _ in range(100):
        log.warning("%s starts again after %s", "route-0", "X")
        log.warning("%s starts again after %s", "route-1", "X")
    assert len(lines(written)) == 2 * logs.REPEATS
    now[0] += logs.REPEAT_SECONDS
    log.warning("%s starts again after %s", "route-0", "Y")
    assert lines(written)[-1] == (
        f"WARNING susurrus.agents.runtime.task: route-0 starts again after Y ({100 - logs.REPEATS} more like it before)"
    )


def test_ever_new_kinds_cost_no_memory(written: io.StringIO) -> None:
    repeats = logs.Repeats()
    for number in range(5_000):
        assert repeats.filter(logging.LogRecord("x", logging.INFO, "", 0, f"kind {number}", (), None))
    assert len(repeats._seen) <= 1_000


def test_what_libraries_fix_themselves_is_not_an_error(written: io.StringIO) -> None:
    transport = logging.getLogger("susurrus.agents.runtime.faust.transport")
    transport.info("[^--BatchConsumer]: Starting...")
    transport.error("[^---BatchConsumerThread]: Thread keepalive is not responding...")
    logging.getLogger("aiokafka.consumer").error("Failed fetch messages from %s: %s", 1, OSError("secret"))
    logging.getLogger("aiokafka.consumer").info("Joined group")
    logging.getLogger("httpx2").info("HTTP Request: GET http://registry/schemas/ids/1")
    assert lines(written) == [
        "WARNING susurrus.agents.runtime.faust.transport: Thread keepalive is not responding...",
        "WARNING aiokafka.consumer: Failed fetch messages from 1: OSError",
    ]


def test_librdkafka_logs_through_python_and_says_once_that_no_broker_answers(
    written: io.StringIO, capfd: pytest.CaptureFixture[str]
) -> None:
    (port,) = free_ports(1)
    clients = Clients({"bootstrap.servers": f"127.0.0.1:{port}"}, application="a")
    producer: Producer = clients.transactional_producer("t")
    admin = clients.admin()
    for _ in range(30):
        producer.poll(0.1)
        admin.poll(0.0)
        clients.serve()
    found = lines(written)
    assert any("Kafka client, FAIL: 127.0.0.1" in line and "Connection refused" in line for line in found)
    assert sum("no broker answers" in line for line in found) in (1, 2)
    assert len(found) <= 2 * logs.REPEATS
    assert all(line.startswith(("WARNING", "INFO")) for line in found)
    assert capfd.readouterr().err == ""


def test_a_fenced_client_is_no_news(written: io.StringIO) -> None:
    client = logs.ClientLog(logging.getLogger("susurrus.agents.kafka.clients"))
    client.log(logging.CRITICAL, "", "TXNERR", "rdkafka#producer-1", "Fatal: fenced by a newer instance")
    client.log(logging.CRITICAL, "", "TXNERR", "rdkafka#producer-1", "[thrd:main]: Current transaction failed")
    assert lines(written) == ["WARNING susurrus.agents.kafka.clients: Kafka client, TXNERR: Current transaction failed"]


def test_threads_are_shown_without_their_values(written: io.StringIO) -> None:
    secret, go_on = "5a5a5a", threading.Event()

    def hold(value: str) -> None:
        go_on.wait(30)

    thread = threading.Thread(target=hold, args=(secret,), name="route-0")
    thread.start()
    try:
        logs.where_threads_are()
    finally:
        go_on.set()
        thread.join()
    [line] = [line for line in lines(written) if "thread route-0: " in line]
    assert "test_logs.py" in line
    assert "hold" in line
    assert secret not in written.getvalue()


def test_a_kafka_exception_is_its_code() -> None:
    assert logs.describe(KafkaException(KafkaError(KafkaError._TRANSPORT, "at ann's"))) == "KafkaException _TRANSPORT"
