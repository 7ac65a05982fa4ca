"""A small run of what is installed, as a program of its own: tests/test_wheel.py calls it with the Python of an environment.

It replays the web log of the demonstration through a real worker, with a noise secret and an epoch that are always the same. It
prints the digest of all that was published, and what the worker's log says about the compiled loops. Nothing of the sources is
imported.
"""

import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from susurrus.agents.demo.histogram import HistogramDemo
from susurrus.agents.demo.machinery import DemoRun, configured
from susurrus.agents.kafka.clients_of import clients_of
from susurrus.agents.kafka.embedded import PARTITIONS, EmbeddedBroker
from susurrus.agents.kafka.follow import Follower

SECRET, EPOCH = bytes(range(32)).hex(), "ab" * 16


class Run(DemoRun):
    """Whose worker has the environment of this process, $SUSURRUS_COMPILED included."""

    place: Path

    def start_worker(self) -> None:
        log = self.stack.enter_context((self.place / "worker.log").open("wb"))
        command = [sys.executable, "-m", "susurrus.agents.cli", "worker", "--config", str(self.place / "demo.toml")]
        environment = os.environ | {"SUSURRUS__WORKER__LOG_LEVEL": "info"}
        worker = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        self.stack.callback(worker.wait)
        self.stack.callback(worker.terminate)


def main() -> None:
    """Print two lines."""
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        broker = stack.enter_context(EmbeddedBroker())
        demo = HistogramDemo(epsilon=6.0, rows=5)
        demo.sections = demo.sections.replace("[start]", f'[start]\nepoch = "{EPOCH}"')
        settings = configured(demo, place, broker.bootstrap_servers)
        (place / "secret").write_text(SECRET)
        for topic in (settings.input.topic, *sorted(settings.topic(spec.name) for spec in settings.topic_specs)):
            broker.create(topic)
        broker.create(settings.topics.charges)
        bars = stack.enter_context(Progress(console=Console(stderr=True), disable=True))
        run = Run(80, settings, place, stack, bars)
        run.place = place
        demo.play(run)
        print(published(run))
        [line] = [line for line in (place / "worker.log").read_text().splitlines() if "the hot loops" in line]
        print(line)


def published(run: DemoRun) -> str:
    """The digest of every release: keys and values, partition by partition, in their order."""
    topic = run.settings.topic("histogram")
    digest, records = hashlib.sha256(), 0
    with contextlib.closing(clients_of(run.settings, quiet=True).reader("digest")) as consumer:
        for partition in range(PARTITIONS):
            follower = Follower(consumer, {(topic, partition): 0})
            while not follower.caught_up:
                for message in follower.read(0.2):
                    records += 1
                    for part in (message.key(), message.value()):
                        digest.update(repr(part).encode())
    assert records > 24, records
    return digest.hexdigest()


if __name__ == "__main__":
    main()
