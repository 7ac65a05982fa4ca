"""Schema registries for tests: a real one on loopback, with the interface of Confluent's, and one whose clock is the test's.

A test asks for the fixture ``schema_registry`` of conftest.py; where none can be had, tests/broker.py says so as for brokers.
"""

import contextlib
import http.client
import subprocess
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from susurrus.agents.broker.artefacts import KafkaUnavailableError, cache_directory, fetch_with_maven, find_java
from susurrus.agents.broker.network import free_ports
from tests.broker import give_up, wait_for
from tests.web_server import Answer, Request, answering

APICURIO = "2.6.13.Final"
ARTEFACT = f"io.apicurio:apicurio-registry-app:{APICURIO}:tar.gz:all"
# Ends with whoever started it, killed or not: its standard input closes then.
_UNTIL_INPUT_ENDS = '"$@" & read -r _; kill -9 $!; wait'


@contextlib.contextmanager
def apicurio() -> Iterator[str]:
    """A real registry, in memory, from its Maven artefact (140 MB, fetched once); the address for Confluent's client."""
    try:
        java, home = fetch_apicurio()
    except KafkaUnavailableError as missing:
        give_up(f"no real schema registry: {missing}")
    with apicurio_of(java, home) as url:
        yield url


def fetch_apicurio() -> tuple[str, Path]:
    """A Java, and the directory with the registry. Raises KafkaUnavailableError."""
    home = cache_directory() / "apicurio" / f"registry-{APICURIO}"
    return find_java(), fetch_with_maven(home, "the schema registry", "dependency:unpack", f"-Dartifact={ARTEFACT}")


@contextlib.contextmanager
def apicurio_of(java: str, home: Path) -> Iterator[str]:
    """The same, from what `fetch_apicurio` gives."""
    (jar,), (port,) = list(home.glob("*-runner.jar")), free_ports(1)
    options = ["-Xmx300m", "-XX:TieredStopAtLevel=1", "-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}"]
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"

    def answers() -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/subjects", timeout=5):
            return True
        return False

    with tempfile.TemporaryDirectory() as directory, (Path(directory) / "log").open("wb") as log:
        command = ["sh", "-c", _UNTIL_INPUT_ENDS, "sh", java, *options, "-jar", str(jar)]
        with subprocess.Popen(
            command, cwd=directory, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
        ) as run:
            try:
                wait_for(answers, "a schema registry that answers")
                yield url
            finally:
                assert run.stdin is not None
                run.stdin.close()


@contextlib.contextmanager
def relay(port: int, to: str) -> Iterator[list[str]]:
    """A registry that comes and goes: the one at ``to`` answers requests to ``port``. Gives the method and path of each request."""
    asked: list[str] = []
    there = urlsplit(to)

    def answer(request: Request) -> Answer:
        asked.append(f"{request.method} {request.path}")
        headers = {name: request.headers[name] for name in ("Accept", "Content-Type") if name in request.headers}
        with contextlib.closing(http.client.HTTPConnection(there.netloc, timeout=30)) as upstream:
            upstream.request(request.method, there.path + request.path, request.body or None, headers)
            found = upstream.getresponse()
            return Answer(found.status, found.read(), {"Content-Type": found.headers.get("Content-Type", "")})

    with answering(answer, port):
        yield asked


class LateRegistry:
    """Takes the place of confluent-kafka's client: an id is known from an instant (ms) on, and asked of ``now``.

    withheld: ids that it refuses to show, for ever.
    """

    def __init__(self, schema: Any, since: Mapping[int, float], now: Callable[[], float]) -> None:
        self.schema, self.since, self.now = schema, since, now
        self.withheld: set[int] = set()
        self.asked: list[int] = []
        self.broken: Exception | None = None

    def __call__(self, properties: Mapping[str, Any]) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """Nothing to close."""

    def get_subjects(self, **query: Any) -> list[str]:
        """As the client has it."""
        return ["some-value"]

    def get_schema(self, schema_id: int, **query: Any) -> Any:
        """As the client has it."""
        from confluent_kafka.schema_registry import SchemaRegistryError

        self.asked.append(schema_id)
        if self.broken is not None:
            raise self.broken
        if schema_id in self.withheld:
            raise SchemaRegistryError(403, 40301, "User is denied operation Read")
        if self.since.get(schema_id, float("inf")) > self.now():
            raise SchemaRegistryError(404, 40403, f"Schema {schema_id} not found")
        return self.schema
