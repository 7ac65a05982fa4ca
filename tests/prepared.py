"""Makes what short-lived brokers start from (agents/broker/prepared.py), once for a Java and the JARs of a Kafka.

It costs what three starts of a broker cost, and a run of the tests has some dozens.
"""

import fcntl
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

from susurrus.agents.broker.artefacts import fetch_jars, find_java, prepared_directory
from susurrus.agents.broker.cluster import KafkaCluster
from susurrus.agents.broker.prepared import CLASSES, DATA, QUICK
from tests.waiting import PATIENCE


class RecordedCluster(KafkaCluster):
    """One broker that leaves behind, when it ends in order, which classes it has loaded."""

    def __init__(self, home: Path) -> None:
        super().__init__(1, heap="256m")
        self.home = home

    def _launch(self, java: str, libs: Path, node: int) -> None:
        process = self._process(node)
        shutil.copytree(process.home / DATA, self.home / DATA)  # before it holds anything
        recorded = f"-XX:ArchiveClassesAtExit={self.home / CLASSES}"
        process.launch(java, libs, [f"-Xmx{self.heap}", *QUICK, recorded])

    def end(self) -> None:
        """SIGTERM, and as long as it takes to write the file."""
        self._process(1).send(signal.SIGTERM)
        deadline = time.monotonic() + PATIENCE
        while self.running() and time.monotonic() < deadline:
            time.sleep(0.1)


def prepare(use: Callable[[KafkaCluster], None]) -> None:
    """Make it, unless it is there. ``use`` does what most tests do first: what it does not load, each broker loads again.

    Raises KafkaUnavailableError. Where Java writes no classes, brokers start without them."""
    java, libs = find_java(), fetch_jars()
    home = prepared_directory(java, libs)
    if home.is_dir():
        return
    with home.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if home.is_dir():  # another process was faster
            return
        partial = home.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        with RecordedCluster(partial) as cluster:
            use(cluster)
            cluster.end()
        partial.rename(home)
