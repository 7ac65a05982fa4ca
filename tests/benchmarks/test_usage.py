"""What a run uses, as /proc and the broker's directory tell it."""

import os
import threading
import time
from pathlib import Path

import pytest

from benchmarks.usage import Written, difference, family, peak_memory_mb, processor_seconds, topic_kind
from tests.waiting import PATIENCE


@pytest.mark.parametrize(
    ("comm", "expected"),
    [
        ("bound-3", "bound"),
        ("release-12", "release"),
        ("main", "main"),
        ("rdk:broker1", "librdkafka"),
        ("streams-count-a", "streams"),
        ("C2 CompilerThre", "compiler"),
        ("python", "other"),
    ],
)
def test_threads_belong_to_families(comm: str, expected: str) -> None:
    assert family(comm) == expected


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("benchmark.b1.by-user", "by-user"),
        ("benchmark.b1.bound-changelog", "bound-changelog"),
        ("streams-count-1-KSTREAM-REPARTITION-0000000002-repartition", "repartition"),
        ("streams-count-1-counts-changelog", "changelog"),
        ("changelog__quix-count-1--raw--default", "changelog"),
        ("__transaction_state", "__transaction_state"),
    ],
)
def test_topics_lose_the_names_of_their_run(topic: str, expected: str) -> None:
    assert topic_kind(topic) == expected


def test_the_time_of_a_named_thread_is_told_apart() -> None:
    over = threading.Event()

    def work() -> None:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text("bound-0")
        ends = time.thread_time() + 0.2
        while time.thread_time() < ends:
            pass
        over.wait()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        deadline = time.monotonic() + PATIENCE
        while processor_seconds(os.getpid()).get("bound", 0.0) < 0.15 and time.monotonic() < deadline:
            time.sleep(0.01)
        found = processor_seconds(os.getpid())
    finally:
        over.set()
        thread.join()
    assert 0.15 <= found["bound"] <= 0.5
    assert found["total"] >= found["bound"]


def test_a_process_that_is_gone_has_used_nothing() -> None:
    assert processor_seconds(2**22 + 1) == {}
    assert peak_memory_mb(2**22 + 1) == 0
    assert peak_memory_mb(os.getpid()) > 1


def test_written_counts_segments_that_are_deleted_or_shrink(tmp_path: Path) -> None:
    partition, other = tmp_path / "benchmark.b1.by-user-0", tmp_path / "benchmark.b1.by-user-1"
    partition.mkdir()
    (partition / "0.log").write_bytes(b"x" * 100)
    with Written(tmp_path) as written:
        (partition / "0.log").write_bytes(b"x" * 150)
        other.mkdir()
        (other / "0.log").write_bytes(b"x" * 30)
        (other / "0.index").write_bytes(b"x" * 1_000)
        assert written.topics() == {"benchmark.b1.by-user": 80}
        (partition / "0.log").unlink()
        (other / "0.log").write_bytes(b"x" * 10)
        (other / "30.log").write_bytes(b"x" * 5)
        assert written.topics() == {"benchmark.b1.by-user": 85}


def test_a_clock_that_ticks_coarsely_gives_no_negative_time() -> None:
    assert difference({"worker": 1.0, "broker": 0.5}, {"worker": 0.25, "broker": 0.51}) == {"worker": 0.75, "broker": 0}
