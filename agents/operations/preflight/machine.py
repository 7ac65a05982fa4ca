"""The machine: the noise secret, the data directory and its disk, the size of a worker, and the limits of open files and
threads."""

import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from susurrus.agents.finding import Finding
from susurrus.agents.runtime import host
from susurrus.agents.runtime.pipeline import Pipeline
from susurrus.agents.runtime.threads import size_of_worker, thread_limit
from susurrus.mechanisms.errors import ConfigurationError

_ROOM: Final = 1 << 30
"""The least room, in bytes. Recent state is in memory (768 MiB at most, decision 5) and is written when a worker stops."""


def check_secret(pipeline: Pipeline[Any]) -> Iterator[Finding]:
    """Is the noise secret there, and not for every user of the machine?"""
    settings = pipeline.settings
    try:
        if not settings.secret():
            return
    except ConfigurationError as error:
        yield Finding.of(error, "noise secret")
        return
    file = settings.secret_path
    if file is not None and file.stat().st_mode & stat.S_IRWXO:
        yield Finding(
            "noise secret",
            "warning",
            f"{file} is for every user here (mode {stat.S_IMODE(file.stat().st_mode):o}), and who reads it can "
            "subtract the noise",
            f"run chmod o= {file}",
        )
    else:
        yield Finding("noise secret", "ok", f"{file}, not for every user" if file else "in the environment")


def check_disk(pipeline: Pipeline[Any]) -> Iterator[Finding]:
    """Can the data directory be written, and is there room?"""
    directory = pipeline.settings.worker.data_directory
    existed = directory.exists()
    try:
        with host.data_directory(directory):
            free = shutil.disk_usage(directory).free
    except ConfigurationError as error:
        yield Finding.of(error, "disk")
        return
    finally:
        if not existed:
            _remove(directory)
    said = f"{free / 1e9:,.1f} GB free"
    if free < _ROOM:
        yield Finding(
            "disk",
            "warning",
            f'worker.data_directory="{directory}": {said}',
            "have 1.1 GB or more, or name another disk",
        )
    else:
        yield Finding("disk", "ok", f"{directory}: can be written and locked, {said}")


def _remove(directory: Path) -> None:
    if directory.is_dir() and not any(directory.iterdir()):
        directory.rmdir()


def check_files(pipeline: Pipeline[Any], *, partitions: int, brokers: int) -> Iterator[Finding]:
    """May a worker open enough files? partitions: all that one worker may get."""
    yield host.file_limit(partitions, stages=len(pipeline.stages), brokers=brokers).finding


def check_threads(pipeline: Pipeline[Any], *, partitions: int, brokers: int) -> Iterator[Finding]:
    """How large is a worker, and may it start enough threads? partitions: all that one worker may get."""
    yield size_of_worker(partitions, stages=len(pipeline.stages), brokers=brokers)
    yield thread_limit(partitions, stages=len(pipeline.stages), brokers=brokers).finding
