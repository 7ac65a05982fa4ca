"""A real PostgreSQL on loopback, from the machine's own packages."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from susurrus.agents.broker.leash import ends_with_us
from susurrus.agents.broker.network import free_ports
from tests import broker
from tests.broker import wait_for

DEBIAN = "/usr/lib/postgresql/*/bin"


@contextlib.contextmanager
def postgres() -> Iterator[int]:
    """Its port on loopback; anyone there may connect as ``postgres``. The test is skipped where PostgreSQL is not installed."""
    programs = [shutil.which("postgres"), *sorted(map(str, Path("/").glob(f"{DEBIAN[1:]}/postgres")))]
    installed = [Path(program).parent for program in programs if program is not None]
    if not installed:
        reason = f"no PostgreSQL (postgres on PATH or in {DEBIAN}); install Debian's package postgresql"
        broker.missing[reason] = broker.missing.get(reason, 0) + 1
        pytest.skip(reason)
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="postgres-", ignore_cleanup_errors=True) as directory:
        user = None
        if os.geteuid() == 0:  # it refuses to run as root
            user = "postgres"
            shutil.chown(directory, user)
        options = ["-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={directory}", "-c", "fsync=off"]
        data = ["-D", f"{directory}/data"]
        create = [
            str(installed[-1] / "initdb"),
            *data,
            "--auth=trust",
            "--username=postgres",
            "--encoding=UTF8",
            "--no-sync",
        ]
        subprocess.run(create, user=user, cwd=directory, check=True, capture_output=True)
        command = [str(installed[-1] / "postgres"), *data, "-p", str(port), *options]
        with (Path(directory) / "log").open("wb") as log:
            server = subprocess.Popen(
                command, user=user, cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
            ends_with_us(server.pid)
        try:
            wait_for(lambda: query(port, "SELECT 1") is not None, "a PostgreSQL that answers")
            yield port
        finally:
            server.terminate()  # what is still open is rolled back
            server.wait(30)


def query(port: int, sql: str) -> str | None:
    """What psql prints; None where the server or a table is not there yet."""
    address = ["--host=127.0.0.1", f"--port={port}", "--username=postgres", "--no-psqlrc"]
    command = ["psql", *address, "--set=ON_ERROR_STOP=1", "--command", sql]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PGOPTIONS": ""})
    return done.stdout if done.returncode == 0 else None
