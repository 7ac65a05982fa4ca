"""Programs of docs/recipes/ that have to be built first: with Maven, or in a Python environment of their own.

Each is built once and kept in the cache directory, as Kafka's JARs are, until its files change.
"""

import fcntl
import hashlib
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from susurrus.agents.broker.artefacts import KafkaUnavailableError, cache_directory, find_java
from tests import broker
from tests.recipes.conftest import RECIPES


def java_program(recipe: str, main: str) -> list[str]:
    """The command that starts a class of the recipe's Maven project; the test is given up without Java or Maven."""
    try:
        java = find_java()
    except KafkaUnavailableError as missing:
        broker.give_up(str(missing))
    home = maven_project(recipe)
    return [java, "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", f"{home / 'classes'}:{home / 'libs'}/*", main]


def maven_project(recipe: str) -> Path:
    """Where the recipe's Maven project is built."""
    project = RECIPES / recipe
    maven = shutil.which("mvn")
    if maven is None:
        broker.give_up(f"no Maven found (mvn), which builds docs/recipes/{recipe}")

    def make(home: Path) -> None:
        quietly([maven, "-B", "-q", "-f", str(project / "pom.xml"), f"-Dbuild.to={home}", "compile"])

    return _built(
        recipe, [project / "pom.xml", *sorted(file for file in project.glob("src/**/*") if file.is_file())], make
    )


def python_environment(recipe: str) -> str:
    """The interpreter of an environment with the recipe's requirements."""
    requirements = RECIPES / recipe / "requirements.txt"

    def make(home: Path) -> None:
        venv.create(home, with_pip=True, clear=True)
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(requirements)]
        quietly([str(home / "bin" / "python"), *install])

    version = ".".join(map(str, sys.version_info[:2]))
    return str(_built(f"{recipe}-python{version}", [requirements], make) / "bin" / "python")


def _built(name: str, sources: Sequence[Path], make: Callable[[Path], None]) -> Path:
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    home = cache_directory() / "recipes" / f"{name}-{digest}"
    home.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{home}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "complete").exists():
            shutil.rmtree(home, ignore_errors=True)
            make(home)
            (home / "complete").touch()
    return home


def quietly(command: Sequence[str]) -> str:
    """The standard output of a command; where it fails, the test does, with the end of what it has printed."""
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        pytest.fail(
            f"{' '.join(command)} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-4000:]}", pytrace=False
        )
    return done.stdout
