"""Which limit of threads binds a worker, and what is said where it is too small."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from susurrus.agents.runtime import threads
from susurrus.agents.runtime.threads import check_threads, size_of_worker, thread_limit, threads_needed
from susurrus.mechanisms.errors import ConfigurationError


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose limits a test writes: /proc and /sys/fs/cgroup below it."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    monkeypatch.setattr(threads, "_PROC", tmp_path / "proc")
    monkeypatch.setattr(threads, "_CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(threads, "_exempt", lambda: True)
    return tmp_path


def group(machine: Path, path: str, most: str, current: int) -> Path:
    folder = machine / "cgroup" / path
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pids.max").write_text(f"{most}\n")
    (folder / "pids.current").write_text(f"{current}\n")
    return folder


@pytest.mark.parametrize(
    ("tasks", "brokers", "seen"), [(3, 1, 38), (9, 1, 68), (24, 1, 155), (56, 1, 337), (16, 3, 146), (209, 1, 1_218)]
)
def test_what_is_needed_is_no_less_than_was_seen(tasks: int, brokers: int, seen: int) -> None:
    """seen: the most threads of a real worker during its start."""
    assert seen <= threads_needed(tasks, brokers) <= 2.5 * seen


@pytest.mark.parametrize(("tasks", "threads_seen", "megabytes_seen"), [(9, 65, 233), (56, 305, 279), (209, 1_064, 414)])
def test_the_size_of_a_worker_is_told_as_it_was_seen(tasks: int, threads_seen: int, megabytes_seen: int) -> None:
    """seen: of a real worker of a histogram on one broker, with some records and no filter."""
    found = size_of_worker(tasks, stages=3, brokers=1)
    told = re.search(r"all (\d+) partitions .* about ([\d,]+) threads .* about ([\d,]+) MB", found.text)
    assert told is not None
    partitions, count, megabytes = (int(number.replace(",", "")) for number in told.groups())
    assert partitions == tasks
    assert count == pytest.approx(threads_seen, rel=0.1)
    assert megabytes == pytest.approx(megabytes_seen, rel=0.1)


def test_a_machine_that_says_nothing_limits_nothing(machine: Path) -> None:
    found = thread_limit(1_000, stages=3, brokers=3)
    assert found.allowed == float("inf")
    check_threads(1_000, stages=3, brokers=3)


def test_the_smallest_room_of_all_groups_binds(machine: Path) -> None:
    (machine / "proc/self/cgroup").write_text("0::/kubepods/pod1\n")
    group(machine, "", "max", 900)
    group(machine, "kubepods", "500", 450)
    group(machine, "kubepods/pod1", "400", 10)
    found = thread_limit(3, stages=3, brokers=1)
    assert found.allowed == 50
    assert f"{machine}/cgroup/kubepods/pids.max, which is 500" in found.action


def test_groups_of_the_first_version_and_the_kernel_count_too(machine: Path) -> None:
    (machine / "proc/self/cgroup").write_text("9:memory:/a\n8:pids:/a\n0::/\n")
    group(machine, "a", "1", 1)  # of no controller of this kind
    group(machine, "pids/a", "300", 100)
    assert thread_limit(3, stages=3, brokers=1).allowed == 200
    (machine / "proc/loadavg").write_text("0.1 0.1 0.1 2/850 77\n")
    (machine / "proc/sys/kernel/threads-max").write_text("1000\n")
    found = thread_limit(3, stages=3, brokers=1)
    assert (found.allowed, found.action) == (
        150,
        "raise kernel.threads-max, which is 1000 for the whole machine (sysctl)",
    )


def test_too_few_for_one_of_each_stage_refuse_and_too_few_for_all_warn(
    machine: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (machine / "proc/self/cgroup").write_text("0::/\n")
    group(machine, "", "60", 10)
    with pytest.raises(
        ConfigurationError, match=r"threads: 50 more are allowed here, .* needs 62 .*; raise .*/pids.max"
    ):
        check_threads(3, stages=3, brokers=1)
    group(machine, "", "80", 10)
    check_threads(3, stages=3, brokers=1)
    assert caplog.text == ""
    check_threads(30, stages=3, brokers=1)
    assert "up to 276 for all 30 partitions" in caplog.text
    assert "or start more workers" in caplog.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_the_limit_of_a_user_is_read_as_the_kernel_keeps_it() -> None:
    """What is said to be left can be started, and no more."""
    program = """
        import os, resource, threading
        from susurrus.agents.runtime.threads import thread_limit
        resource.setrlimit(resource.RLIMIT_NPROC, (40, 40))
        os.setgid(64_123)
        os.setuid(64_123)  # a user without other processes
        found = thread_limit(3, stages=3, brokers=1)
        stop, started = threading.Event(), 0
        try:
            while started < 200:
                threading.Thread(target=stop.wait, daemon=True).start()
                started += 1
        except RuntimeError:
            pass
        print(int(found.allowed), started, "ulimit -u, which is 40" in found.action, flush=True)
        os._exit(0)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False, timeout=120
    )
    allowed, started, named = done.stdout.split()
    assert (allowed, named) == (started, "True"), done
