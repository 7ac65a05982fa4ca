"""The wheel, built and installed as a user does it: in an environment of its own, away from the sources.

With this Python; also with the interpreters that $SUSURRUS_TEST_PYTHONS names (paths, with ":" between them). With the compiled
loops where this machine can build them; a wheel without them can be built, and is looked at, everywhere. $SUSURRUS_TEST_WHEELS
names a folder of `make wheels`: then the wheel that users of this machine's kind get is tested, and not one that is built here.
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
from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename

from susurrus.agents.broker.artefacts import KafkaUnavailableError, fetch_jars
from susurrus.agents.broker.network import free_ports
from tests.broker import give_up

ROOT = Path(__file__).parents[1]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
COMPILED = {f"susurrus/{package}/_compiled.abi3.so" for package in ("mechanisms", "topics")}
PYTHONS = [sys.executable, *filter(None, os.environ.get("SUSURRUS_TEST_PYTHONS", "").split(":"))]

# One process builds and installs; an installation takes a minute.
pytestmark = [pytest.mark.shipped, pytest.mark.xdist_group("wheel"), pytest.mark.timeout(900)]


@dataclass(frozen=True)
class Environment:
    """A virtual environment, and a folder far from the sources to run in."""

    home: Path

    def install(self, *what: str | Path) -> None:
        """With the locked versions, so that a new release of a dependency does not change the test.

        Bytecode is written for what runs, and not for all of the packages, which takes half of an installation.
        """
        constraints = self.home / "constraints.txt"
        lock = (ROOT / "deploy" / "requirements-dev.lock").read_text()
        constraints.write_text("\n".join(re.findall(r"^[a-z][^\\\n]*", lock, re.MULTILINE)))
        options = ("--quiet", "--disable-pip-version-check", "--no-compile", "-c", constraints)
        self.python("-m", "pip", "install", *options, *what)

    def python(self, *arguments: str | Path) -> str:
        return self.run(self.home / "bin" / "python", *arguments)

    def susurrus(self, *arguments: str | Path) -> str:
        return self.run(self.home / "bin" / "susurrus", *arguments)

    def run(self, *command: str | Path) -> str:
        """Standard output. AssertionError with all output where the command fails."""
        done = subprocess.run(
            command, cwd=self.home, env=self.environment(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def environment(self) -> dict[str, str]:
        """Of a machine that has no Rust: what is found by its names writes to `asked`, and fails."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CARGO"))}
        hidden = self.home / "no-rust"
        hidden.mkdir(exist_ok=True)
        for name in ("cargo", "rustc", "rustup"):
            (hidden / name).write_text(f"#!/bin/sh\necho {name} >>'{self.asked}'\nexit 127\n")
            (hidden / name).chmod(0o755)
        return environment | {"PATH": f"{hidden}{os.pathsep}{environment['PATH']}"}

    @property
    def asked(self) -> Path:
        """Which programs of Rust were called; there is no such file where none was."""
        return self.home / "asked"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the sources, because a build writes beside them; with what a crate's own builds leave, as a clone may have it."""
    folder = tmp_path_factory.mktemp("copy")
    for name in ("agents", "mechanisms", "topics"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "target"))
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    for stale in ("topics/_compiled.abi3.so", "topics/rust/target/release/lib.rs"):
        (folder / stale).parent.mkdir(parents=True, exist_ok=True)
        (folder / stale).write_text("stale")
    return folder


@pytest.fixture(scope="module")
def built(copy: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The source distribution, and the wheel that is made of it."""
    if made := os.environ.get("SUSURRUS_TEST_WHEELS"):
        return {"sdist": Path(made) / f"susurrus-{VERSION}.tar.gz", "wheel": for_this_machine(Path(made))}
    folder = tmp_path_factory.mktemp("dist")
    # Cargo's cache, so that only the first run compiles what the crates need.
    build(copy, folder, CARGO_TARGET_DIR=str(ROOT / "build" / "tested"))
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return {"sdist": sdist, "wheel": wheel}


def build(source: Path, folder: Path, *options: str, **environment: str) -> None:
    """Into a folder. AssertionError with what it said where it fails."""
    uv = Path(sys.executable).with_name("uv")
    command = [uv, "build", "--no-build-isolation", "--python", sys.executable, *options]
    done = subprocess.run(
        [*command, "--out-dir", folder, source],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def for_this_machine(folder: Path) -> Path:
    """The wheel that pip would choose here. AssertionError where there is none."""
    here = set(sys_tags())
    wheels = [each for each in folder.glob(f"susurrus-{VERSION}-*.whl") if here & parse_wheel_filename(each.name)[3]]
    [wheel] = [each for each in wheels if not each.name.endswith("-py3-none-any.whl")]
    return wheel


def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as opened:
        return {name for name in opened.namelist() if ".dist-info/" not in name}


@pytest.fixture(scope="module", params=PYTHONS)
def installed(
    request: pytest.FixtureRequest, built: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Environment:
    home = tmp_path_factory.mktemp("environment")
    subprocess.run([request.param, "-m", "venv", home], check=True)
    environment = Environment(home)
    environment.install(built["wheel"])
    return environment


def sources(*, rust: bool = False) -> Iterator[str]:
    """Every file of the packages, as an installation has them; or every file that cargo needs."""
    for package in ("agents", "mechanisms", "topics"):
        for file in (ROOT / package).rglob("*"):
            made = {"__pycache__", "target"} & set(file.parts) or file.name.startswith("_compiled.")
            if file.is_file() and not made and ("rust" in file.parts) == rust:
                yield f"susurrus/{file.relative_to(ROOT)}".replace("/agents/releases/", "/releases/")


def test_the_wheel_has_every_file_of_the_packages_and_no_other(built: dict[str, Path]) -> None:
    files = contents(built["wheel"])
    assert files - COMPILED == set(sources())
    assert {"susurrus/agents/broker/pom.xml", "susurrus/agents/py.typed"} < files


def test_a_wheel_with_compiled_loops_is_for_one_platform_and_every_python(
    built: dict[str, Path], installed: Environment
) -> None:
    if built["wheel"].name.endswith("-py3-none-any.whl"):
        pytest.skip("NO RUST HERE: a wheel with the compiled loops is not built, and not tested")
    assert "-cp311-abi3-" in built["wheel"].name
    assert contents(built["wheel"]) >= COMPILED
    found = installed.python(
        "-c", "from susurrus.agents.operations.compiled import finding; print(finding().level == 'ok')"
    )
    assert found == f"{os.environ.get('SUSURRUS_COMPILED') != '0'}\n"


def test_a_machine_without_rust_publishes_the_same_by_the_wheel_and_in_pure_python(
    built: dict[str, Path], installed: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    if built["wheel"].name.endswith("-py3-none-any.whl"):
        pytest.skip("NO RUST HERE: a wheel with the compiled loops is not built, and not tested")
    monkeypatch.setenv("SUSURRUS_COMPILED", "1")
    compiled, loops = installed.python(ROOT / "tests" / "installed_run.py").splitlines()
    assert re.search(r"INFO .*the hot loops are compiled, by rustc \d", loops)
    monkeypatch.setenv("SUSURRUS_COMPILED", "0")
    pure, loops = installed.python(ROOT / "tests" / "installed_run.py").splitlines()
    assert "WARNING" in loops
    assert "SUSURRUS_COMPILED=0: the hot loops run in pure Python" in loops
    assert compiled == pure
    asked = set(installed.asked.read_text().split()) if installed.asked.exists() else set()
    assert asked <= {"rustc"}  # pip asks for its version, for the name that it gives itself on the network


def test_a_machine_without_rust_gets_a_wheel_in_pure_python(copy: Path, tmp_path: Path) -> None:
    """And a module that another build left in the sources does not slip in."""
    build(copy, tmp_path, "--wheel", CARGO="no-such-cargo", SUSURRUS_BUILD_COMPILED="")
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name == f"susurrus-{VERSION}-py3-none-any.whl"
    assert contents(wheel) == set(sources())
    assert "no cargo that runs was found" in (copy / "build" / "compiled" / "outcome.txt").read_text()


@pytest.mark.parametrize(
    ("cargo", "why"), [("no-such-cargo", "no cargo that runs"), ("old", "cargo 1.75.0 is too old")]
)
def test_who_asks_for_the_compiled_loops_hears_why_there_are_none(
    copy: Path, tmp_path: Path, cargo: str, why: str
) -> None:
    if cargo == "old":
        cargo = str(tmp_path / "cargo")
        Path(cargo).write_text("#!/bin/sh\necho cargo 1.75.0\n")
        Path(cargo).chmod(0o755)
    with pytest.raises(AssertionError, match=f"NO COMPILED LOOPS .{why}"):
        build(copy, tmp_path, "--wheel", CARGO=cargo, SUSURRUS_BUILD_COMPILED="1")


def test_the_source_distribution_has_what_the_wheel_is_made_of(built: dict[str, Path]) -> None:
    with tarfile.open(built["sdist"]) as sdist:
        files = {name.partition("/")[2] for name in sdist.getnames()}
    installed = (name.removeprefix("susurrus/") for name in (*sources(), *sources(rust=True)))
    needed = {re.sub("^releases/", "agents/releases/", name) for name in installed}
    assert needed | {"pyproject.toml", "setup.py", "README.md", "LICENSE"} <= files
    assert {"topics/rust/src/lib.rs", "topics/rust/Cargo.lock", "mechanisms/rust/Cargo.toml"} <= needed
    assert not [name for name in files if "/target/" in name or "_compiled." in name]


def test_the_version_is_the_projects(installed: Environment) -> None:
    version, loops = installed.susurrus("--version").splitlines()
    assert version == f"susurrus {VERSION}"
    assert (
        loops
        == installed.python("-c", "from susurrus.agents.operations.compiled import finding; print(finding())").strip()
    )


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
