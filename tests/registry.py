"""A schema registry for tests: Apicurio on loopback, with the interface of Confluent's."""

import contextlib
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator

import pytest

from deploy.kafka import cache_directory, free_ports


@contextlib.contextmanager
def apicurio() -> Iterator[str]:
    """A real registry on loopback, from its Maven artefact (140 MB, fetched once)."""
    maven, java = shutil.which("mvn"), shutil.which("java")
    if not maven or not java:
        pytest.skip("a schema registry needs Maven and Java")
    home = cache_directory() / "apicurio-registry-2.6.13"
    if not (home / "lib").exists():
        home.mkdir(parents=True, exist_ok=True)
        artefact = "io.apicurio:apicurio-registry-app:2.6.13.Final:tar.gz:all"
        copy = [maven, "-q", "-B", "dependency:copy", f"-Dartifact={artefact}", f"-DoutputDirectory={home}"]
        if subprocess.run(copy, cwd=home, capture_output=True, check=False).returncode:
            pytest.skip("the schema registry could not be fetched with Maven")
        (archive,) = home.glob("*.tar.gz")
        subprocess.run(["tar", "xzf", str(archive)], cwd=home, check=True)
        archive.unlink()
    (jar,), (port,) = list(home.glob("*-runner.jar")), free_ports(1)
    options = ["-Xmx300m", "-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}"]
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    with (
        (home / "log").open("wb") as log,
        subprocess.Popen([java, *options, "-jar", str(jar)], stdout=log, stderr=log) as run,
    ):
        try:
            for _ in range(600):
                with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/subjects", timeout=5):
                    break
                time.sleep(0.1)
            else:
                pytest.fail(f"the schema registry did not start: see {home / 'log'}")
            yield url
        finally:
            run.kill()
