"""The wheel, built and installed as a user does it: in an environment of its own, away from the sources.

With this Python; also with the interpreters that $SUSURRUS_TEST_PYTHONS names (paths, with ":" between them).
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from susurrus.agents.broker.artefacts import KafkaUnavailableError, fetch_jars
from susurrus.agents.broker.network import free_ports
from tests.broker import give_up

ROOT = Path(__file__).parents[1]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
PYTHONS = [sys.executable, *filter(None, os.environ.get("SUSURRUS_TEST_PYTHONS", "").split(":"))]

# One process builds and installs; an installation takes a minute.
pytestmark = [pytest.mark.xdist_group("wheel"), pytest.mark.timeout(900)]


@dataclass(frozen=True)
class Environment:
    """A virtual environment, and a folder far from the sources to run in."""

    home: Path

    def install(self, *what: str | Path) -> None:
        """With the locked versions, so that a new release of a dependency does not change the test."""
        constraints = self.home / "constraints.txt"
        lock = (ROOT / "deploy" / "requirements-dev.lock").read_text()
        constraints.write_text("\n".join(re.findall(r"^[a-z][^\\\n]*", lock, re.MULTILINE)))
        self.python("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", constraints, *what)

    def python(self, *arguments: str | Path) -> str:
        return self.run(self.home / "bin" / "python", *arguments)

    def susurrus(self, *arguments: str | Path) -> str:
        return self.run(self.home / "bin" / "susurrus", *arguments)

    def run(self, *command: str | Path) -> str:
        """Standard output. AssertionError with all output where the command fails."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        done = subprocess.run(command, cwd=self.home, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The source distribution, and the wheel that is made of it; of a copy, because a build writes beside the sources."""
    folder, copy = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("copy")
    for name in ("agents", "mechanisms", "topics"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    uv = Path(sys.executable).with_name("uv")
    build = [uv, "build", "--quiet", "--no-build-isolation", "--python", sys.executable, "--out-dir", folder, copy]
    subprocess.run(build, check=True)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return {"sdist": sdist, "wheel": wheel}


@pytest.fixture(scope="module", params=PYTHONS)
def installed(
    request: pytest.FixtureRequest, built: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Environment:
    home = tmp_path_factory.mktemp("environment")
    subprocess.run([request.param, "-m", "venv", home], check=True)
    environment = Environment(home)
    environment.install(built["wheel"])
    return environment


def sources() -> Iterator[str]:
    """Every file of the packages, as an installation has them."""
    for package in ("agents", "mechanisms", "topics"):
        for file in (ROOT / package).rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                yield f"susurrus/{file.relative_to(ROOT)}"


def test_the_wheel_has_every_file_of_the_packages_and_no_other(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as wheel:
        files = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert files == set(sources())
    assert {"susurrus/agents/broker/pom.xml", "susurrus/agents/py.typed"} < files


def test_the_source_distribution_has_what_the_wheel_is_made_of(built: dict[str, Path]) -> None:
    with tarfile.open(built["sdist"]) as sdist:
        files = {name.partition("/")[2] for name in sdist.getnames()}
    needed = {name.removeprefix("susurrus/") for name in sources()}
    assert needed | {"pyproject.toml", "README.md", "LICENSE"} <= files


def test_the_version_is_the_projects(installed: Environment) -> None:
    assert installed.susurrus("--version") == f"susurrus {VERSION}\n"


def test_the_demonstration_runs(installed: Environment) -> None:
    assert re.search(r"^Kept +\d+ of 2,088 urls", installed.susurrus("demo"), re.MULTILINE)


@pytest.mark.broker
def test_kafka_is_started_shown_and_stopped(installed: Environment, tmp_path: Path) -> None:
    try:
        fetch_jars()
    except KafkaUnavailableError as missing:
        give_up(f"no real broker: {missing}")
    (port,) = free_ports(1)
    where = ("--directory", tmp_path / "kafka")
    try:
        assert installed.susurrus("kafka", "start", "--port", str(port), *where) == f"127.0.0.1:{port}\n"
        assert "running" in installed.susurrus("kafka", "status", *where)
    finally:
        assert "stopped" in installed.susurrus("kafka", "stop", *where)


def test_the_extras_bring_what_they_are_for(installed: Environment, built: dict[str, Path]) -> None:
    clients = (
        "import confluent_kafka.schema_registry.avro, confluent_kafka.schema_registry.protobuf\n"
        "from importlib import import_module\n"
        "from susurrus.agents.formats.avro import Avro\n"
        "from susurrus.agents.formats.protobuf import Protobuf\n"
        "for each in (*Avro.packages, *Protobuf.packages):\n"
        "    import_module(each)\n"
    )
    with pytest.raises(AssertionError, match="ModuleNotFoundError"):
        installed.python("-c", clients)
    installed.install(f"{built['wheel']}[registry]")
    installed.python("-c", clients)
    with pytest.raises(AssertionError, match="ModuleNotFoundError"):
        installed.python("-c", "import pyarrow.parquet")
    installed.install(f"{built['wheel']}[parquet]")
    installed.python("-c", "import pyarrow.parquet")
    installed.python("-m", "pip", "check")


def test_the_bill_of_materials_names_what_is_installed(installed: Environment) -> None:
    """By the options that the image is made with."""
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text().replace("\\\n", " ")
    asked = re.findall(r"/opt/build/bin/cyclonedx-py (.*?)(?:&&|$)", dockerfile, re.MULTILINE)
    (line,) = {" ".join(each.split()) for each in asked}  # both images', which differ in nothing here
    python, bill = installed.home / "bin" / "python", installed.home / "sbom.json"
    options = line.replace("/opt/susurrus/bin/python", str(python)).replace("/opt/susurrus/sbom.json", str(bill))
    options = options.replace("pyproject.toml", str(ROOT / "pyproject.toml"))
    installed.run(Path(sys.executable).with_name("cyclonedx-py"), *options.split())
    found = json.loads(bill.read_text())
    assert (found["bomFormat"], found["metadata"]["component"]["name"]) == ("CycloneDX", "susurrus")
    listed = json.loads(installed.python("-m", "pip", "list", "--format", "json", "--disable-pip-version-check"))
    components = {(each["name"], each["version"]) for each in [*found["components"], found["metadata"]["component"]]}
    assert components == {(each["name"], each["version"]) for each in listed}
    assert all(each.get("licenses") for each in found["components"] if each["name"] in ("numpy", "scipy", "duckdb"))
