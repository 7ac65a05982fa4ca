"""A worker's pages: what Prometheus and Kubernetes read, over HTTP; and that nothing about a user or a key is among it."""

import asyncio
import contextlib
import http.client
import json
import os
import socket
import stat
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from susurrus.agents.broker.network import free_ports
from susurrus.agents.finding import Finding, waits
from susurrus.agents.operations import compiled
from susurrus.agents.operations.metrics import registry_of
from susurrus.agents.operations.web import CONNECTIONS, Pages, WebServer
from susurrus.agents.runtime.health import Health
from susurrus.agents.runtime.metrics import Metrics as WorkerMetrics
from susurrus.agents.runtime.task import PartitionTask
from susurrus.mechanisms.errors import ConfigurationError
from tests.agents.config.test_settings import changed
from tests.broker import Broker, wait_for
from tests.pipeline import Pipeline, archive_topic, produce, web_log

Metrics = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parsed(text: str) -> Metrics:
    """Prometheus' text format: every family stands once, and no sample repeats."""
    found: Metrics = {}
    families: set[str] = set()
    for family in text_string_to_metric_families(text):
        assert family.name not in families
        assert family.type in ("gauge", "counter", "histogram")
        families.add(family.name)
        for sample in family.samples:
            assert (family.type == "counter") == sample.name.endswith("_total")
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


class Task(SimpleNamespace):
    """As much of a partition task as the pages look at."""

    def __init__(self, stage: str, partition: int, **changes: Any) -> None:
        fields = {
            "state": "running", "stalled": None, "recovery": SimpleNamespace(disk_finding=None), "interval": 3,
            "committing": SimpleNamespace(
                position=12, committed_at=time.monotonic() - 5, store_bytes=4096, counters={"in": 100, "late": 2}
            ),
            "gauges": {}, "alive_at": time.monotonic(), "context": SimpleNamespace(place=(stage, partition)),
        }  # fmt: skip
        super().__init__(stage_name=stage, partition=partition, name=f"{stage}-{partition}", **(fields | changes))

    __hash__ = object.__hash__

    def report(self) -> dict[str, Any]:
        known = {} if self.interval is None else {"interval": self.interval}
        return {"position": self.committing.position, "gauges": self.gauges} | known

    def stall(self) -> Finding | None:
        found: Finding | None = self.stalled
        return found

    def is_alive(self) -> bool:
        return self.state in ("starting", "running")

    silent_for = PartitionTask.silent_for


def supervisor_of(*tasks: Task, generation: int = 4, loop: Any = None) -> Any:
    """A supervisor of stub tasks, with a worker's own judgement over them."""
    group: Any = SimpleNamespace(
        tasks={(task.stage_name, task.partition): task for task in tasks}, generation=generation, loop=loop
    )
    disk: Any = SimpleNamespace(unhealthy=lambda: None)
    return SimpleNamespace(
        group=group,
        health=Health(group, disk, changed().worker.watchdog / 1000, threading.Event()),
        worker='host-"1"\\',
        metrics=WorkerMetrics("susurrus.page-views"),
        charges=(),
    )


@pytest.fixture
def serve() -> Iterator[Any]:
    servers = []

    def start(supervisor: Any) -> int:
        pages = Pages(supervisor, registry_of(supervisor, changed()), changed())
        servers.append(WebServer(pages, host="127.0.0.1", port=0))
        return int(servers[-1].server_port)

    yield start
    for server in servers:
        server.close()


def place(stage: str, partition: int, **more: str) -> frozenset[tuple[str, str]]:
    return frozenset({"pipeline": "susurrus.page-views", "stage": stage, "partition": str(partition), **more}.items())


def test_metrics_say_what_every_partition_does(serve: Any) -> None:
    port = serve(
        supervisor_of(
            Task("route", 0),
            Task("bound", 1, stalled=waits("route", "source 2 is missing", "start it")),
            Task(
                "release",
                7,
                state="starting",
                interval=None,
                committing=SimpleNamespace(position=-1, committed_at=None, store_bytes=0, counters={}),
            ),
        )
    )
    status, text = get(port, "/metrics")
    found = parsed(text)
    assert status == 200
    states = {labels for (name, labels), value in found.items() if name == "susurrus_partition_state" and value == 1}
    assert states == {
        place("route", 0, state="running"),
        place("bound", 1, state="stalled"),
        place("release", 7, state="starting"),
    }
    assert found["susurrus_partition_position", place("route", 0)] == 12
    assert found["susurrus_partition_input_info", place("route", 0, topic="route", topic_partition="0")] == 1
    assert found["susurrus_partition_closed_until_seconds", place("route", 0)] == 4 * 900
    assert 5 <= found["susurrus_partition_seconds_since_commit", place("route", 0)] < 60
    assert found["susurrus_store_bytes", place("route", 0)] == 4096
    assert found["susurrus_stage_committed", place("route", 0, total="late")] == 2
    assert found["process_resident_memory_bytes", frozenset()] > 1e6
    known = {name for name, labels in found if labels >= place("release", 7)}
    assert known == {"susurrus_partition_input_info", "susurrus_partition_state", "susurrus_store_bytes"}
    [worker] = [dict(labels) for name, labels in found if name == "susurrus_worker_info"]
    assert worker["worker"] == 'host-"1"\\'


def test_the_page_in_words_gives_the_reason(serve: Any) -> None:
    port = serve(
        supervisor_of(Task("route", 0), Task("bound", 1, stalled=waits("route", "source 2 is missing", "start it")))
    )
    assert get(port, "/") == (
        200,
        'susurrus.page-views: worker host-"1"\\, generation 4\n'
        f"{compiled.finding()}\n"
        "bound-1 (bound 1): stalled, position 12, interval 3, source 2 is missing; start it\n"
        "route-0 (route 0): running, position 12, interval 3\n",
    )


def test_what_a_window_has_from_those_before_it_is_on_both_pages(serve: Any) -> None:
    gauges = {"remembered_keys": 1234, "persistence": 0.7, "evidence_windows": 4}
    port = serve(supervisor_of(Task("release", 0, gauges=gauges), Task("route", 0)))
    found = parsed(get(port, "/metrics")[1])
    assert {name: value for (name, labels), value in found.items() if name.startswith("susurrus_release_")} == {
        f"susurrus_release_{name}": value for name, value in gauges.items()
    }
    assert found["susurrus_release_persistence", place("release", 0)] == 0.7
    first = get(port, "/")[1].splitlines()[2]
    assert first.endswith("interval 3, remembered_keys 1234, persistence 0.7, evidence_windows 4")


def headers(port: int, **sent: str) -> tuple[int, dict[str, str]]:
    """The status of / and the headers of its answer, asked with these."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/", headers=sent)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, dict(answer.headers)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers)


def test_a_browser_gets_the_same_lines_and_takes_them_for_text_only(serve: Any) -> None:
    port = serve(supervisor_of(Task("bound", 1, stalled="source 2 is missing <script>: start it")))
    status, found = headers(port, Accept="text/html,application/xhtml+xml")
    assert (status, found["Content-Type"]) == (200, "text/plain; charset=utf-8")
    assert (found["X-Content-Type-Options"], found["Cache-Control"]) == ("nosniff", "no-store")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_a_page_on_loopback_answers_to_no_other_name(serve: Any, host: str) -> None:
    """Another site's page in an operator's browser may let its own name point to this machine."""
    assert headers(serve(supervisor_of()), Host=host)[0] == 421


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:9000", "[::1]:9000"])
def test_a_page_on_loopback_answers_to_the_names_of_loopback(serve: Any, host: str) -> None:
    assert headers(serve(supervisor_of()), Host=host)[0] == 200


def test_a_refusal_is_healthy_a_hanging_task_is_not(serve: Any) -> None:
    long_ago = time.monotonic() - 1000
    port = serve(supervisor_of(Task("route", 0), Task("bound", 0, state="refused", alive_at=long_ago)))
    assert get(port, "/healthz") == get(port, "/readyz") == (200, "ok\n")
    port = serve(supervisor_of(Task("route", 0), Task("bound", 0, alive_at=long_ago)))
    for path in ("/healthz", "/readyz"):
        status, text = get(port, path)
        assert (status, text[:19]) == (503, "bound-0 has hung fo")


def test_a_worker_is_ready_when_all_it_has_is_recovered(serve: Any) -> None:
    port = serve(supervisor_of(generation=-1))
    assert get(port, "/readyz") == (503, "waiting for the consumer group\n")
    assert get(port, "/healthz") == (200, "ok\n")
    port = serve(supervisor_of(Task("route", 0), Task("bound", 3, state="starting")))
    assert get(port, "/readyz") == (503, "starting: bound-3\n")
    assert get(port, "/healthz") == (200, "ok\n")


def test_a_worker_that_cannot_start_yet_is_healthy_and_says_what_it_waits_for(serve: Any) -> None:
    supervisor = supervisor_of(generation=-1)
    supervisor.health.waits_for = waits("topics", "input.topic=raw does not exist", "create it")
    port = serve(supervisor)
    assert get(port, "/healthz") == (200, "ok\n")
    assert get(port, "/readyz") == (503, "input.topic=raw does not exist; create it\n")
    assert get(port, "/")[1].endswith("not started yet: input.topic=raw does not exist; create it\n")


def test_a_loop_that_hangs_is_unhealthy(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("susurrus.agents.runtime.health._LOOP_SECONDS", 0.2)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    port = serve(supervisor_of(Task("route", 0), loop=loop))
    assert get(port, "/healthz") == (200, "ok\n")
    released = threading.Event()
    loop.call_soon_threadsafe(released.wait, 60)
    try:
        status, text = get(port, "/healthz")
        assert (status, text[:14]) == (503, "the event loop")
    finally:
        released.set()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_nothing_else_is_served(serve: Any) -> None:
    port = serve(supervisor_of(Task("route", 0)))
    assert get(port, "/metrics?x=1")[0] == 200
    assert get(port, "/../etc/passwd")[0] == 404
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("HEAD", "/healthz")
    head = connection.getresponse()
    assert (head.status, head.read(), head.headers["Server"].strip()) == (200, b"", "susurrus")
    connection.close()
    connection.request("POST", "/healthz", b"")
    assert connection.getresponse().status == 405
    connection.close()


def half_a_header(client: socket.socket) -> None:
    client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")


def nothing(client: socket.socket) -> None:
    pass


def no_reading(client: socket.socket) -> None:
    client.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")


def endless_body(client: socket.socket) -> None:
    client.sendall(b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n" + bytes(100_000))


SLOW = (half_a_header, nothing, no_reading, endless_body)


def slow_clients(stack: contextlib.ExitStack, port: int, number: int) -> list[socket.socket]:
    clients = []
    for index in range(number):
        client = stack.enter_context(socket.socket())
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", port))
        with contextlib.suppress(ConnectionError):
            SLOW[index % len(SLOW)](client)
        clients.append(client)
    return clients


def trickle(clients: list[socket.socket]) -> None:
    for client in clients:
        with contextlib.suppress(OSError):
            client.send(b"x", socket.MSG_DONTWAIT)


def is_cut_off(client: socket.socket) -> bool:
    """The server has closed the connection; what it sent before is still read."""
    client.setblocking(False)
    try:
        while client.recv(65_536):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    return True


def many_partitions() -> Any:
    return supervisor_of(*(Task("bound", number) for number in range(4_000)))  # a page larger than what sockets buffer


@pytest.mark.parametrize("slow", [half_a_header, nothing, no_reading])
def test_a_connection_ends_in_time_whatever_its_client_does(
    serve: Any, slow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("susurrus.agents.operations.web.CONNECTION_SECONDS", 2.0)
    port = serve(many_partitions())
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(socket.socket())
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", port))
        with contextlib.suppress(ConnectionError):
            slow(client)
        local = client.getsockname()

        def gone() -> bool:
            if slow is half_a_header:
                trickle([client])  # a sign of life is no reason to go on waiting
            return local not in connected_to(port)

        wait_for(lambda: local in connected_to(port), "the server has it")
        wait_for(gone, "the connection is cut off")


def connected_to(port: int) -> set[tuple[str, int]]:
    """Clients of connections that this process still has open at the server's end."""
    ends = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if not stat.S_ISSOCK(os.stat(int(number)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(number))) as end:
                if end.family == socket.AF_INET and end.getsockname()[1] == port:
                    ends.add(end.getpeername())
    return ends


def test_slow_clients_neither_pile_up_nor_keep_a_probe_out(serve: Any) -> None:
    port = serve(supervisor_of(Task("route", 0)))
    with contextlib.ExitStack() as stack:
        clients: list[socket.socket] = []
        for _ in range(10):
            clients += slow_clients(stack, port, 30)
            trickle(clients)
            assert get(port, "/healthz") == (200, "ok\n")
            assert len(connected_to(port)) <= CONNECTIONS + 16
        wait_for(lambda: sum(map(is_cut_off, clients)) >= len(clients) - CONNECTIONS, "all but the newest are cut off")


def test_a_page_is_made_once_for_all_who_ask_at_the_same_time(serve: Any) -> None:
    asked, go = [], threading.Event()

    def report() -> dict[str, Any]:
        asked.append(1)
        assert go.wait(60)
        return {"position": 12, "interval": 3}

    port = serve(supervisor_of(Task("route", 0, report=report)))
    found: list[tuple[int, str]] = []
    clients = [threading.Thread(target=lambda: found.append(get(port, "/metrics"))) for _ in range(8)]
    for client in clients:
        client.start()
    wait_for(lambda: len(connected_to(port)) == 8, "all have asked")
    assert get(port, "/healthz") == (200, "ok\n")
    go.set()
    for client in clients:
        client.join()
    assert [status for status, _ in found] == [200] * 8
    assert len(asked) <= 2  # a late one may have come after the first answer


def test_a_failure_is_a_500_without_its_text(serve: Any, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise KeyError("ann")

    port = serve(supervisor_of(Task("route", 0, report=fail)))
    assert get(port, "/metrics") == (500, "see the worker's log\n")
    assert "KeyError" in caplog.text
    assert "ann" not in caplog.text.replace("annotations", "")


def test_a_port_that_is_taken_says_what_to_do(serve: Any) -> None:
    port = serve(supervisor_of())
    with pytest.raises(ConfigurationError, match=r"SUSURRUS__WORKER__WEB_PORT"):
        WebServer(Pages(supervisor_of(), CollectorRegistry(), changed()), host="127.0.0.1", port=port)


def test_a_worker_is_scraped_while_it_runs_and_tells_of_no_user_and_no_key(kafka: Broker, tmp_path: Path) -> None:
    raw = archive_topic(kafka, 2)
    events = list(web_log(2))
    produce(kafka, raw, events)
    produce(kafka, raw, [(0, b"not json", events[-1][2])])
    (port,) = free_ports(1)
    settings = {"worker": {"web_port": port, "log_format": "json"}}
    with Pipeline(kafka, tmp_path, raw, settings) as pipeline:
        worker = pipeline.start()
        pipeline.wait()
        wait_for(lambda: get(port, "/readyz")[0] == 200, "the worker is ready")

        def total(stage: str, name: str) -> float:
            found = parsed(get(port, "/metrics")[1])
            return sum(
                value
                for (family, labels), value in found.items()
                if family == "susurrus_stage_total" and {("stage", stage), ("total", name)} <= labels
            )

        assert total("route", "in") == len(events) + 1
        assert total("route", "dead_letter") == 1
        assert total("route", "routed") == total("bound", "taken") > 0
        capped = total("route", "capped") + total("bound", "capped")  # route drops what bound could not keep anyway
        assert total("bound", "kept") + capped == len(events)
        found = parsed(get(port, "/metrics")[1])
        closed = {labels: value for (name, labels), value in found.items() if "closed_until" in name}
        assert len(closed) == 2 + 4 + 4
        assert set(closed.values()) == {807_321_600}  # 1995-08-02T00:00:00Z, clock.until
        released = [
            line for line in map(json.loads, worker.log.read_text().splitlines()) if line.get("event") == "release"
        ]
        assert {(line["partition"], line["trigger"]) for line in released} == set(product(range(4), range(1, 25)))
        assert len(released) == 4 * 24
        assert sum(line["rows"] for line in released) == total("release", "rows")
        assert {(line["window"], line["of_triggers"], line["stage"]) for line in released} == {
            ("1995-08-01T00:00:00Z", 24, "release")
        }
        pages = get(port, "/metrics")[1] + get(port, "/")[1] + worker.log.read_text()
        for event in events[:2000]:
            fields = json.loads(event[1])
            assert fields["host"] not in pages
            assert fields["url"] == "/" or fields["url"] not in pages
        assert get(port, "/healthz") == (200, "ok\n")
        assert worker.stop() == 0
        with pytest.raises(OSError, match="refused"):
            get(port, "/healthz")


def test_slow_clients_leave_a_worker_its_connections_to_kafka(kafka: Broker, tmp_path: Path) -> None:
    raw = kafka.create_topic(f"raw-{kafka.new_prefix()}", 2)
    (port,) = free_ports(1)
    live = {
        "start": {"first_window": "1995-08-01T00:00:00Z"},
        "clock": {"kind": "producer", "until": None},
        "worker": {"web_port": port},
    }
    with Pipeline(kafka, tmp_path, raw, live) as pipeline, contextlib.ExitStack() as stack:
        worker = pipeline.start()
        wait_for(lambda: _answers(port) == (200, "ok\n"), "the worker is ready")
        before = open_files(worker.process.pid)
        clients: list[socket.socket] = []
        for _ in range(10):
            clients += slow_clients(stack, port, 30)
            trickle(clients)
            assert get(port, "/healthz") == (200, "ok\n")
            assert open_files(worker.process.pid) <= before + CONNECTIONS + 32
        records = [(partition, value, None) for partition, value, _ in web_log(2)]
        produce(kafka, raw, records)
        pipeline.wait_for_total(len(records), "in")
        assert get(port, "/readyz") == (200, "ok\n")
        assert worker.stop() == 0


def _answers(port: int) -> tuple[int, str] | None:
    try:
        return get(port, "/readyz")
    except OSError:
        return None


def open_files(process: int) -> int:
    return len(os.listdir(f"/proc/{process}/fd"))
