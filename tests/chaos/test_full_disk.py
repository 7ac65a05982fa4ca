"""A disk that cannot be used: its worker gives its partitions to others, ends with a code of its own, and says why."""

import contextlib
import resource
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from susurrus.agents.broker.network import free_ports
from susurrus.agents.cli.console import FAILED
from susurrus.agents.runtime.ending import DISK_UNUSABLE
from tests import broker
from tests.broker import Broker, wait_for
from tests.chaos.conftest import RAW_PARTITIONS
from tests.pipeline import Pipeline, Public, Worker

pytestmark = pytest.mark.chaos

SMALL_DISK = "4m"
"""Room for the looks, and no more than that beside the first files of the stores."""


@contextlib.contextmanager
def small_disk(place: Path, size: str = SMALL_DISK) -> Iterator[Path]:
    """A file system of its own that is soon full; only root may mount one."""
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        reason = f"no file system can be mounted here ({done.stderr.strip()}): a full disk is tried with ulimit -f only"
        broker.missing[reason] = broker.missing.get(reason, 0) + 1
        pytest.skip(reason)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place: Path) -> None:
    """Until nothing more fits."""
    with contextlib.suppress(OSError), (place / "ballast").open("wb", buffering=0) as ballast:
        while True:
            ballast.write(b"x" * 4096)


def health(port: int) -> str:
    """What /healthz says; empty where it does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=10) as answer:
            return f"{answer.status} {answer.read().decode()}"
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read().decode()}"
    except OSError:
        return ""


def in_group(worker: Worker) -> bool:
    return "of the group" in worker.log.read_text(errors="replace")


@pytest.mark.campaign
def test_a_full_disk_ends_its_worker_and_the_other_publishes_the_same_bytes(
    kafka: Broker, loaded_raw: str, loaded_undisturbed: Public, tmp_path: Path
) -> None:
    with (
        small_disk(tmp_path / "disk") as disk,
        Pipeline(kafka, tmp_path, loaded_raw, {"worker": {"fetch_bytes": 65_536}}) as pipeline,
    ):
        [port] = free_ports(1)
        healthy = pipeline.start()
        sick = pipeline.start(SUSURRUS__WORKER__DATA_DIRECTORY=str(disk), SUSURRUS__WORKER__WEB_PORT=str(port))
        said: list[str] = []

        def unhealthy() -> bool:
            said.append(health(port))
            return (said[-1].startswith("503") and "ENOSPC" in said[-1]) or sick.process.poll() is not None

        wait_for(lambda: in_group(sick), "the worker on the small disk joins")
        fill(disk)
        wait_for(unhealthy, "the health page says what is wrong")
        assert "errno=ENOSPC" in said[-1], said
        assert str(disk) in said[-1]
        assert sick.process.wait(60) == DISK_UNUSABLE, sick.tail()
        assert "No space left on device" in sick.tail()
        assert "the worker ends, exit code 74" in sick.log.read_text()
        pipeline.wait()
        assert healthy.process.poll() is None
        assert pipeline.public() == loaded_undisturbed


def test_a_full_disk_is_noticed_though_nothing_is_written_and_all_partitions_leave_together(
    kafka: Broker, raw: str, undisturbed: Public, tmp_path: Path
) -> None:
    """Everything has been published, and what the stores hold is in memory."""
    with small_disk(tmp_path / "disk", "64m") as disk, Pipeline(kafka, tmp_path, raw) as pipeline:
        [port] = free_ports(1)
        worker = pipeline.start(SUSURRUS__WORKER__DATA_DIRECTORY=str(disk), SUSURRUS__WORKER__WEB_PORT=str(port))
        pipeline.wait()
        wait_for(lambda: health(port) == "200 ok\n", "it is healthy", seconds=60)
        fill(disk)
        said: list[str] = []
        wait_for(
            lambda: said.append(health(port)) or said[-1].startswith("503") or worker.process.poll() is not None,
            "the health page says what is wrong",
            seconds=60,
        )
        assert said[-1].startswith(f"503 errno=ENOSPC path={disk}/worker-0: "), said
        assert worker.process.wait(90) == DISK_UNUSABLE, worker.tail()
        log = worker.log.read_text()
        assert 0 < log.count("No space left on device") <= 3, log  # one look, not one for each partition
        assert "stopped without waiting" not in log
        found = pipeline.trouble()
        assert found.count("refused, errno=ENOSPC") == RAW_PARTITIONS + 4 + 4, found
        pipeline.start(SUSURRUS__WORKER__DATA_DIRECTORY=str(tmp_path / "elsewhere"))
        wait_for(lambda: "refused" not in pipeline.trouble(), "the refusals are withdrawn", seconds=90)
        assert pipeline.public() == undisturbed


def test_why_a_worker_gave_up_is_in_the_status_while_no_worker_has_its_partitions(
    kafka: Broker, raw: str, tmp_path: Path
) -> None:
    """The limit of file sizes needs no root; a file that would exceed it cannot be written (EFBIG)."""
    with Pipeline(kafka, tmp_path, raw) as pipeline:
        with pipeline.held() as worker:
            resource.prlimit(worker.process.pid, resource.RLIMIT_FSIZE, (1, 1))
        assert worker.process.wait(90) == DISK_UNUSABLE, worker.tail()
        found = pipeline.trouble()
        assert "refused, errno=EFBIG" in found
        assert "worker-0" in found
        # Started again where it can write, it goes on and nothing is refused any more.
        pipeline.start(SUSURRUS__WORKER__DATA_DIRECTORY=str(tmp_path / "elsewhere"))
        wait_for(lambda: "refused" not in pipeline.trouble(), "the refusals are withdrawn")


def test_a_disk_that_is_full_at_the_start_is_no_defect(kafka: Broker, raw: str, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk, Pipeline(kafka, tmp_path, raw) as pipeline:
        fill(disk)
        worker = pipeline.start(SUSURRUS__WORKER__DATA_DIRECTORY=str(disk / "state"))
        assert worker.process.wait(60) == FAILED, worker.tail()
        assert "No space left on device" in worker.tail()
        assert "worker.data_directory" in worker.tail()
        assert not in_group(worker)
