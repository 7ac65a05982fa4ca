"""What a broker is made of: a Java on this machine, and JARs that Maven fetches once into a cache."""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from importlib import resources
from pathlib import Path
from typing import Final

from susurrus.mechanisms.errors import SusurrusError

MINIMUM_JAVA: Final = 17
_VERSION: Final = re.compile(rb"(<kafka\.version>)([^<]+)(</kafka\.version>)")
_LAST_LINES: Final = 15
"""How much of what Maven wrote an error shows."""


class KafkaUnavailableError(SusurrusError):
    """No broker can run on this machine. Operator action: install what the message names."""


def cache_directory() -> Path:
    """Where JARs and clusters are kept: ``$SUSURRUS_CACHE``, else ``$XDG_CACHE_HOME/susurrus``, else ``~/.cache/susurrus``."""
    if override := os.environ.get("SUSURRUS_CACHE"):
        return Path(override).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "susurrus"


def find_java() -> str:
    """The Java launcher from ``JAVA_HOME`` or the path; raises KafkaUnavailableError below version 17."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    wanted = f"install a JDK {MINIMUM_JAVA} or later (Debian: openjdk-17-jdk-headless), or let JAVA_HOME name one"
    if java is None or not os.access(java, os.X_OK):
        raise KafkaUnavailableError(f"JAVA_HOME={home or ''}: no Java found; {wanted}")
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', told)
    if version is None or int(version[1]) < MINIMUM_JAVA:
        found = version[1] if version else "unknown"
        raise KafkaUnavailableError(f"java={java} version={found}: Kafka needs {MINIMUM_JAVA}; {wanted}")
    return java


def kafka_version() -> str:
    """Which Kafka runs where none is named: ``$SUSURRUS_KAFKA_VERSION``, else the one that Susurrus is tested on."""
    if asked := os.environ.get("SUSURRUS_KAFKA_VERSION"):
        return asked
    (found,) = _VERSION.findall(_pom_as_it_is())
    return str(found[1].decode())


def jars_directory(version: str | None = None) -> Path:
    """Where the JARs of this Kafka are or will be: a folder for each version."""
    return cache_directory() / "kafka" / f"libs-{hashlib.sha256(_pom(version)).hexdigest()[:12]}"


def prepared_directory(java: str, libs: Path) -> Path:
    """Where that stands from which short-lived brokers start (``prepared.py``): of this installation of Java and these JARs."""
    installed = Path(java).resolve()
    made_for = f"{installed} {installed.stat().st_mtime_ns}"
    return libs.with_name(f"{libs.name}-prepared-{hashlib.sha256(made_for.encode()).hexdigest()[:12]}")


def fetch_jars(version: str | None = None) -> Path:
    """The directory of Kafka's JARs, fetched unless they were fetched for this POM before; raises KafkaUnavailableError.

    ``version``: as Maven names it, "3.6.2"; :func:`kafka_version` by default.
    """
    version = version or kafka_version()
    goal = ("dependency:copy-dependencies", "-DincludeScope=runtime")
    return fetch_with_maven(jars_directory(version), f"the JARs of Kafka {version}", *goal, version=version)


def fetch_with_maven(home: Path, what: str, *goal: str, version: str | None = None) -> Path:
    """The directory ``home``, as a goal of the dependency plugin has filled it the first time.

    ``what`` is for messages, ``version`` is Kafka's. Raises KafkaUnavailableError without Maven, or where it fails.
    """
    if home.is_dir():
        return home
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaUnavailableError(
            f"mvn: not found, and it fetches {what} the first time; install Maven (Debian: maven)"
        )
    home.parent.mkdir(parents=True, exist_ok=True)
    with open(home.parent / "fetch.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if home.is_dir():  # another process was faster
            return home
        partial = home.with_name(f"{home.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        # Maven leaves markers beside the POM, and would take an emptied cache for a full one by them.
        with tempfile.TemporaryDirectory() as project:
            pom = Path(project) / "pom.xml"
            pom.write_bytes(_pom(version))
            fetched = subprocess.run(
                [maven, "-B", "-q", "-f", str(pom), *goal, f"-DoutputDirectory={partial}"],
                capture_output=True,
                text=True,
                stdin=subprocess.DEVNULL,
                check=False,
            )
        if fetched.returncode != 0:
            last = "\n".join((fetched.stdout + fetched.stderr).strip().splitlines()[-_LAST_LINES:])
            raise KafkaUnavailableError(
                f"Maven could not fetch {what}; its last lines follow; check that it reaches a repository (settings.xml):\n{last}"
            )
        partial.rename(home)
    return home


def _pom(version: str | None) -> bytes:
    """What Maven fetches for this version of Kafka. Raises KafkaUnavailableError for one that no Kafka has."""
    version = version or kafka_version()
    if not re.fullmatch(r"\d+(\.\d+){1,3}[\w.-]*", version):
        raise KafkaUnavailableError(
            f"SUSURRUS_KAFKA_VERSION={version!r}: give one of Apache Kafka's releases, as in 3.9.2"
        )
    return _VERSION.sub(lambda found: found[1] + version.encode() + found[3], _pom_as_it_is())


def _pom_as_it_is() -> bytes:
    """Package data, so that an installed wheel has it."""
    return resources.files(__package__).joinpath("pom.xml").read_bytes()
