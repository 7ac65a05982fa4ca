"""What a worker says of the machine it is on: of its data directory, and of the number of files it may open."""

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from susurrus.agents.runtime import host
from susurrus.agents.runtime.store import OPEN_TABLES
from susurrus.mechanisms.errors import ConfigurationError
from tests.agents.operations.test_probe import CONFIGURATION
from tests.waiting import PATIENCE


def problem(directory: Path) -> str:
    with pytest.raises(ConfigurationError) as found, host.data_directory(directory):
        pass
    return str(found.value)


def test_a_directory_is_made_and_nothing_is_left_in_it(tmp_path: Path) -> None:
    with host.data_directory(tmp_path / "a" / "b"):
        pass
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_a_file_in_the_way_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "state"
    file.write_text("")
    assert problem(file) == f'worker.data_directory="{file}": File exists; a file is in the way; name a directory'
    assert problem(file / "below") == (
        f'worker.data_directory="{file / "below"}": Not a directory; a file is in the way; name a directory'
    )


def test_a_directory_that_cannot_be_made_is_reported() -> None:
    found = problem(Path("/proc/self/susurrus"))
    assert found.startswith('worker.data_directory="/proc/self/susurrus": ')
    assert found.endswith(f"let user {os.getuid()} write there, or name another directory")


@pytest.mark.parametrize(
    ("module", "name", "code", "advice"),
    [
        (os, "fsync", errno.ENOSPC, "free some space"),
        (os, "fsync", errno.EROFS, "mount a volume there that can be written"),
        (fcntl, "flock", errno.ENOLCK, "name a directory on a local file system, with locks (flock)"),
    ],
)
def test_a_disk_that_does_not_do_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, code: int, advice: str
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(module, name, fail)
    with pytest.raises(ConfigurationError) as found, host.data_directory(tmp_path):
        pass
    assert found.value.text == f'worker.data_directory="{tmp_path}": {os.strerror(code)}'
    assert found.value.action.startswith(advice)
    assert list(tmp_path.iterdir()) == []


def test_what_fails_later_in_the_directory_is_told_too_and_nothing_else_is(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="worker-0/lock"), host.data_directory(tmp_path):
        (tmp_path / "worker-0" / "lock").open("w")
    with pytest.raises(FileNotFoundError), host.data_directory(tmp_path):
        Path("/proc/nowhere").read_text()


def limited(soft: int, hard: int, *command: str, **more: Any) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["/bin/sh", "-c", f'ulimit -Sn {soft} && ulimit -Hn {hard} && exec "$@"', "sh", sys.executable, *command],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        **more,
    )


RAISE = """
import logging, resource
from susurrus.agents.runtime import host
from susurrus.agents.runtime.store import OPEN_TABLES
logging.basicConfig(format="%(message)s", level="INFO")
host.raise_file_limit(24, stages=3, brokers=3)
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def test_the_soft_limit_is_raised_as_far_as_needed() -> None:
    needed = host.files_needed(24, 3, tables=OPEN_TABLES)
    found = limited(256, needed + 100, "-c", RAISE)
    assert found.stdout == f"{needed}\n", found.stderr
    assert found.stderr == f"ulimit -n raised from 256 to {needed}\n"


def test_a_hard_limit_that_is_too_low_for_all_partitions_is_told_with_the_number() -> None:
    found = limited(256, 1000, "-c", RAISE)
    assert found.stdout == "1000\n", found.stderr
    assert f"and up to {host.files_needed(24, 3, tables=16):,} for all 24 partitions" in found.stderr


def test_a_hard_limit_that_is_too_low_for_any_worker_ends_it(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(CONFIGURATION.format(servers="127.0.0.1:1"))
    command = ("-m", "susurrus.agents.cli", "worker", "--config", str(tmp_path / "p.toml"))
    found = limited(100, 120, *command, cwd=tmp_path, env={"PATH": "", "SUSURRUS_SECRET": "5a" * 32, "COLUMNS": "500"})
    assert found.returncode == 2
    least = host.files_needed(3, 1, tables=16)
    assert (
        f"ulimit -n: at most 120 open files are allowed, but a worker needs {least} for one partition" in found.stderr
    )


def test_a_worker_without_its_directory_ends_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(CONFIGURATION.format(servers="127.0.0.1:1"))
    (tmp_path / "susurrus-data").write_text("")
    command = [sys.executable, "-m", "susurrus.agents.cli", "worker", "--config", str(tmp_path / "p.toml")]
    environ = {"PATH": "", "SUSURRUS_SECRET": "5a" * 32, "COLUMNS": "500"}
    found = subprocess.run(
        command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert found.returncode == 2
    assert 'worker.data_directory="susurrus-data": File exists; a file is in the way' in found.stderr
    assert "defect" not in found.stderr
