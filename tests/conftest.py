"""Fixtures shared by all tests: one broker of each kind a run, started when first asked for (tests/broker.py, tests/sharing.py).

Tests marked ``campaign`` run with ``--campaign``, or where a test is named (``path::test``): `make campaign` runs all of them.
"""

import contextlib
import signal
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from itertools import zip_longest
from typing import Any

import pytest

from susurrus.agents.broker.artefacts import KafkaUnavailableError
from susurrus.agents.operations.compiled import path_taken
from tests import broker, registry, sharing
from tests.broker import Broker
from tests.guarded import Guarded, guarded_broker

_ONE_EACH_RUN = {"kafka_cluster": "cluster", "schema_registry": "registry", "guarded": "guarded broker"}
"""Fixtures that only one of xdist's workers shall set up -> the group of tests that it gets."""
_LONG_LIVED = {"_three_brokers", "schema_registry", "guarded"}
"""Their Java processes end with their group, which one process gets as a whole."""
_REAL = {"kafka", "lone_broker", *_ONE_EACH_RUN}
_HOST = pytest.StashKey[sharing.Host]()
_DEADLINE = pytest.StashKey[float]()
_NO_TIME = "no time left"


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A real Kafka broker, shared by all processes of the run: use ``new_prefix()`` for every name."""
    if address := getattr(request.config, "workerinput", {}).get("broker"):
        yield sharing.broker_of(address)
        return
    with contextlib.ExitStack() as stack:
        try:
            found = stack.enter_context(broker.found_broker())
        except KafkaUnavailableError as missing:
            broker.give_up(str(missing))
        yield found


@pytest.fixture(scope="session")
def _three_brokers() -> Iterator[Broker]:
    with broker.real_cluster() as found:
        yield found


@pytest.fixture
def kafka_cluster(_three_brokers: Broker) -> Iterator[Broker]:
    """Three real brokers that the test may kill, pause and restart; they are healed afterwards."""
    yield _three_brokers
    _three_brokers.heal()


@pytest.fixture
def lone_broker() -> Iterator[Broker]:
    """A real broker of the test's own, without any replica: when it is down, Kafka is down."""
    with broker.real_cluster(1) as found:
        yield found


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A real broker with TLS, passwords and rights (tests/guarded.py)."""
    with guarded_broker(tmp_path_factory.mktemp("guarded")) as found:
        yield found


@pytest.fixture(scope="session")
def embedded() -> Iterator[Broker]:
    """librdkafka's in-process broker; no transactions are filtered, and topics appear when first named."""
    with broker.embedded_broker() as found:
        yield found


@pytest.fixture(scope="session")
def schema_registry() -> Iterator[str]:
    """The address of a real schema registry, shared by the session: use subjects of your own."""
    with registry.apicurio() as url:
        yield url


@pytest.fixture(scope="session")
def once(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Callable[[str, Callable[[], Any]], Any]:
    """``once(name, make)``: the result of ``make``, which is called once in the whole run."""
    worker = getattr(request.config, "workerinput", {}).get("workerid", "master")
    return lambda name, make: sharing.made_once(tmp_path_factory, worker, name, make)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--campaign", action="store_true", help="also run the tests marked campaign (long, repeated)")
    parser.addoption("--minutes", type=float, default=float("inf"), help="start no test after so many minutes")


def pytest_report_header() -> str:
    """Which of the two paths through the hot loops this run tests."""
    return f"susurrus: {path_taken()[1]}"


def pytest_configure(config: pytest.Config) -> None:
    # A shell's background jobs ignore SIGINT, and so would every process that a test starts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[_DEADLINE] = time.monotonic() + 60 * config.getoption("--minutes")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before any fixture of a test."""
    if time.monotonic() > item.config.stash[_DEADLINE]:
        pytest.skip(_NO_TIME)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
    """In a worker of xdist, after the teardown. Elsewhere tests of a group need not follow each other."""
    result = yield
    if hasattr(item.config, "workerinput"):
        sharing.end_unneeded(item, nextitem, _LONG_LIVED)
    return result


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Whoever asks for a real broker or registry is marked ``broker``, so that ``-m "not broker"`` needs no discipline."""
    for item in items:
        if _REAL & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.broker)
    if not config.getoption("--campaign") and not any("::" in argument for argument in config.args):
        left = [item for item in items if item.get_closest_marker("campaign")]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if not item.get_closest_marker("campaign")]
    if hasattr(config, "workerinput"):
        _group(items)


def _group(items: list[pytest.Item]) -> None:
    """For xdist (``--dist loadgroup``): what goes to one process, and in which order.

    Tests on a broker wait and the others compute, so that both kinds take turns. The others stay together by files, whose
    fixtures they share. What only one process may do comes first: it takes minutes, which the others would wait for at the end.
    """
    alone: set[pytest.Item] = set()
    waiting: list[pytest.Item] = []
    computing: list[pytest.Item] = []
    for item in items:
        shared = [group for name, group in _ONE_EACH_RUN.items() if name in getattr(item, "fixturenames", ())]
        named = item.get_closest_marker("xdist_group")
        if shared or named:
            alone.add(item)
        if shared:
            item.add_marker(pytest.mark.xdist_group(shared[0]))
        elif not named and not item.get_closest_marker("broker"):
            item.add_marker(pytest.mark.xdist_group(item.location[0]))
        (waiting if item.get_closest_marker("broker") else computing).append(item)
    # The first case of every test before the second of any: a campaign may be short of time.
    cases = Counter[str]()
    turn = {}
    for item in waiting:
        name = item.nodeid.partition("[")[0]
        turn[item], cases[name] = cases[name], cases[name] + 1
    waiting.sort(key=lambda item: turn[item])
    files: dict[object, list[pytest.Item]] = {}
    for item in computing:
        files.setdefault(item.path, []).append(item)
    turns = zip_longest(([item] for item in waiting), files.values(), fillvalue=list[pytest.Item]())
    items[:] = [item for one, file in turns for item in (*one, *file)]
    items.sort(key=lambda item: item not in alone)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """In xdist's controller, before it starts a worker."""
    config = node.config
    if _HOST not in config.stash:
        config.stash[_HOST] = sharing.Host()
        config.add_cleanup(config.stash[_HOST].close)
    node.workerinput["broker"] = config.stash[_HOST].address


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In a worker of xdist: tell the controller what was missing."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["missing"] = dict(broker.missing)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """In the controller: hear of it."""
    for reason, times in getattr(node, "workeroutput", {}).get("missing", {}).items():
        broker.missing[reason] = broker.missing.get(reason, 0) + times


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tests without their broker are the ones that matter most here: never let that pass quietly."""
    late = [report.nodeid for report in terminalreporter.getreports("skipped") if _NO_TIME in str(report.longrepr)]
    if late:
        terminalreporter.section(f"NOT RUN: {len(late)} TESTS, NO TIME LEFT", sep="!", yellow=True, bold=True)
        for name in sorted({name.partition("[")[0] for name in late}):
            terminalreporter.line(f"{sum(other.partition('[')[0] == name for other in late)}x {name}")
    for reason, times in broker.missing.items():
        terminalreporter.section("TESTS ON A REAL BROKER DID NOT RUN", sep="!", red=True, bold=True)
        terminalreporter.line(f"{times}x {reason}")
