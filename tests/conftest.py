"""Fixtures shared by all tests: one broker of each kind a run, started when first asked for (tests/broker.py, tests/sharing.py).

A run leaves out tests marked ``campaign`` without ``--campaign`` (`make campaign`), and without ``--check`` (`make check`) those
marked ``shipped`` or ``thorough`` and statistical ones that have passed on the same code (tests/left_out.py).
"""

import contextlib
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from susurrus.agents.broker.artefacts import KafkaUnavailableError
from susurrus.agents.operations import compiled
from tests import broker, oauth_broker, order, registry, sharing
from tests.broker import Broker
from tests.guarded import Guarded, guarded_broker
from tests.left_out import LeftOut, can_wait
from tests.statistical import Passed
from tests.terminated import Terminated

_LONG_LIVED = {"_three_brokers", "schema_registry", "guarded", "oauth_door"}
"""Their Java processes end with their group, which one process gets as a whole."""
_REAL = {"kafka", "lone_broker", *order.ONE_EACH_RUN}
_OF_ITS_OWN = {"lone_broker", "browser", *order.ONE_EACH_RUN}
"""What takes seconds to start for few tests: these are marked ``thorough``."""
_HOST = pytest.StashKey[sharing.Host]()
_DEADLINE = pytest.StashKey[float]()
_PATIENCE = pytest.StashKey[float]()
_LEFT_OUT = pytest.StashKey[LeftOut]()
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
def oauth_door() -> Iterator[oauth_broker.Door]:
    """A real broker that lets clients in by tokens, and who gives them (tests/oauth_broker.py)."""
    with oauth_broker.door() as found:
        yield found


@pytest.fixture
def door(oauth_door: oauth_broker.Door) -> oauth_broker.Door:
    """The same, and tokens that last."""
    oauth_door.provider.reset()
    return oauth_door


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
    parser.addoption("--check", action="store_true", help="also run what `make test` leaves out and `make check` runs")
    parser.addoption("--record-durations", action="store_true", help="write tests/durations.json, with --check")
    parser.addoption("--minutes", type=float, default=float("inf"), help="start no test after so many minutes")
    parser.addoption(
        "--until",
        type=float,
        default=float("inf"),
        help="with --check: run what `make test` runs first, and start nothing else after this time (seconds since 1970)",
    )
    parser.addoption("--shuffle", default="", help="with --until: any text; decides the order of what may be left out")


def pytest_report_header() -> str:
    """Which of the two paths through the hot loops this run tests."""
    return f"susurrus: {compiled.finding()}"


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Terminated())
    config.stash[_DEADLINE] = time.monotonic() + 60 * config.getoption("--minutes")
    config.stash[_PATIENCE] = time.monotonic() + config.getoption("--until") - time.time()
    config.stash[_LEFT_OUT] = LeftOut(config, Passed())
    config.pluginmanager.register(config.stash[_LEFT_OUT])
    if config.getoption("--record-durations") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(order.Recorder())


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before any fixture of a test."""
    stash, now = item.config.stash, time.monotonic()
    if now > stash[_DEADLINE] or (now > stash[_PATIENCE] and can_wait(item)):
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
    """Whoever asks for a real broker or registry is marked ``broker``, so that ``-m "not broker"`` needs no discipline.

    What takes seconds to start for few tests makes them ``thorough``, and so do many odd records (``fuzz``).
    """
    for item in items:
        asked = set(getattr(item, "fixturenames", ()))
        if _REAL & asked:
            item.add_marker(pytest.mark.broker)
        if _OF_ITS_OWN & asked or item.get_closest_marker("fuzz"):
            item.add_marker(pytest.mark.thorough)
    config.stash[_LEFT_OUT].take_out(config, items)
    if hasattr(config, "workerinput"):
        alone = order.group(items)
        limited = config.getoption("--until") < float("inf")
        items[:] = order.ordered(
            items,
            alone,
            order.recorded(),
            cases_in_turn=config.getoption("--campaign"),
            can_wait=can_wait if limited else lambda _: False,
            shuffle=config.getoption("--shuffle"),
        )


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
