"""The consumers that docs/reading.md shows, in Python and Java, on a real broker: they print complete releases and no others."""

import subprocess
import sys
from pathlib import Path

import pytest

from susurrus.agents.broker.artefacts import KafkaUnavailableError, fetch_jars, find_java
from susurrus.topics.wire.timestamps import format_time
from tests.agents.histogram.test_releases import Log
from tests.agents.released import DAY, EPOCHS, WINDOW
from tests.broker import Broker, give_up
from tests.docs.test_docs import ROOT, blocks
from tests.waiting import PATIENCE

PAGE = ROOT / "docs" / "reading.md"
PROGRAM = ROOT / "docs" / "reading" / "ReadReleases.java"
NEXT_DAY = format_time(WINDOW + DAY)
TODAY = format_time(WINDOW)


@pytest.fixture(scope="module")
def log(kafka: Broker) -> Log:
    """Two days; a release that was aborted, one of which a partition is missing, and an empty one."""
    log = Log(kafka)
    log.release(1, [{b'"a"': 50}, {}])
    log.begin(0, 2, {b'"a"': 666}).abort_transaction(30)
    log.release(2, [{b'"a"': 60}, {b'"b"': 80}])
    log.release(1, [{}, {}], window=WINDOW + DAY)
    log.release(1, [{b'"c"': 9}, {}], window=WINDOW + DAY, epoch=2)
    log.begin(0, 3, {b'"a"': 70}).commit_transaction(30)
    return log


def test_the_python_consumer(log: Log, tmp_path: Path) -> None:
    [program] = [block for block in blocks(PAGE, "python") if "consumer.subscribe" in block]
    for shown, used in (
        ("localhost:9092", log.settings.kafka.bootstrap_servers),
        ("susurrus.page-views", log.settings.application),
    ):
        assert shown in program
        program = program.replace(shown, used)
    assert program.count('"dashboard"') == 1
    (tmp_path / "consumer.py").write_text(program.replace('"dashboard"', f'"{log.settings.application}-x"'))
    with subprocess.Popen(
        [sys.executable, tmp_path / "consumer.py"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        lines = {run.stdout.readline().strip() for _ in range(4)}
        run.terminate()
    assert lines == {
        f"{EPOCHS[1]} {TODAY} 1 1 keys",
        f"{EPOCHS[1]} {TODAY} 2 2 keys",
        f"{EPOCHS[1]} {NEXT_DAY} 1 0 keys",
        f"{EPOCHS[2]} {NEXT_DAY} 1 1 keys",
    }


@pytest.mark.thorough
def test_the_java_consumer(log: Log) -> None:
    try:
        command = [find_java(), "-cp", f"{fetch_jars()}/*", str(PROGRAM)]
    except KafkaUnavailableError as missing:
        give_up(f"no Java consumer: {missing}")
    released = {
        f'{TODAY} trigger 1: 1 keys, most: "a" 50 ± 5',
        f'{TODAY} trigger 2: 2 keys, most: "b" 80 ± 5',
        f"{NEXT_DAY} trigger 1: 0 keys",
        f'{NEXT_DAY} trigger 1: 1 keys, most: "c" 9 ± 5',
    }
    for silence in (5, 20, 80):  # a machine with much to do may be silent for longer before the first line
        arguments = [log.settings.kafka.bootstrap_servers, log.settings.application, str(silence)]
        found = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert found.returncode == 0, found.stderr[-2000:]
        lines = set(found.stdout.splitlines())
        assert lines <= released
        if lines == released:
            break
    assert lines == released
