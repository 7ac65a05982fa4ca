"""The last resort, in processes of its own: a process ends after a signal even if something hangs, with a code that says how."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from susurrus.agents.config.sections import WorkerSettings
from susurrus.agents.runtime import ending
from tests.waiting import PATIENCE

PROLOGUE = """
import asyncio, ctypes, os, signal, sys
from susurrus.agents.runtime import ending
from susurrus.agents.runtime.ending import ENDING
ending._BACKSTOP_SECONDS = 1.0
ENDING.seconds = 4.0
ENDING.listen()
signal.signal(signal.SIGTERM, ENDING.leave)
def hang(library):
    "Inside C without end, for any signal: a mutex that is locked twice."
    mutex = ctypes.create_string_buffer(64)
    library.pthread_mutex_lock(mutex)
    print("ready", flush=True)
    library.pthread_mutex_lock(mutex)
"""
BACKSTOP = 1


def told_to_stop(program: str, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
    """Exit code and standard error of a program that is sent a signal once it says that it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROLOGUE + program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process:
        try:
            assert process.stdout.readline() == "ready\n", process.communicate()[1]
            process.send_signal(number)
            _, said = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    return process.returncode, said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_main_thread_that_does_not_come_back_from_a_library_is_ended(number: signal.Signals) -> None:
    code, said = told_to_stop(f"signal.signal({number:d}, lambda *_: None)\nhang(ctypes.CDLL(None))", number)
    assert code == 128 + number
    assert "not ended in time (worker.stop_timeout)" in said


def test_an_end_in_which_a_library_lets_no_other_thread_run_is_ended() -> None:
    code, _ = told_to_stop(
        """
def end(*_):
    ENDING.begin(128 + signal.SIGTERM)
    hang(ctypes.PyDLL(None))  # with Python's lock, so that none of our threads can act
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
while True:
    signal.pause()
"""
    )
    assert code == BACKSTOP


def test_an_interpreter_that_hangs_while_it_goes_away_is_ended() -> None:
    code, _ = told_to_stop(
        """
class Client:
    def __del__(self, hang=hang, library=ctypes.PyDLL(None)):
        hang(library)
client = Client()
def end(*_):
    ENDING.begin(128 + signal.SIGTERM)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
while True:
    signal.pause()
"""
    )
    assert code == BACKSTOP


def test_an_end_in_order_is_in_order() -> None:
    code, said = told_to_stop('print("ready", flush=True)\nwhile True:\n    signal.pause()')
    assert (code, said) == (0, "")


def test_an_end_does_not_depend_on_what_it_interrupts() -> None:
    code, said = told_to_stop(
        """
print("ready", flush=True)
while True:
    try:
        signal.pause()
    except BaseException as error:  # as inside the constructor of a client
        raise SystemError from error
"""
    )
    assert (code, said) == (0, "")


def test_the_event_loop_hears_of_the_signal_too() -> None:
    code, said = told_to_stop(
        """
async def main():
    heard = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, heard.set)
    ENDING.listen()
    ENDING.listen()
    print("ready", flush=True)
    await heard.wait()
    assert ENDING.left() < ENDING.seconds or ENDING._deadline is not None
asyncio.run(main())
sys.exit(9)
"""
    )
    assert (code, said) == (9, "")


def test_a_worker_that_gives_up_ends_with_its_own_code_also_where_the_end_hangs() -> None:
    code, said = told_to_stop(
        """
signal.signal(signal.SIGTERM, lambda *_: hang(ctypes.CDLL(None)))
ENDING.give_up(ending.DISK_UNUSABLE, seconds=0.5)
while True:
    signal.pause()
"""
    )
    assert code == 74
    assert "exit code 74" in said


@pytest.mark.parametrize(
    ("file", "pattern"),
    [
        ("deploy/kubernetes/base/workers.yaml", r"terminationGracePeriodSeconds: (\d+)\b"),
        ("docker-compose.yml", r"stop_grace_period: (\d+)s\n"),
    ],
)
def test_whoever_stops_a_worker_waits_longer_than_it_needs(file: str, pattern: str) -> None:
    text = (Path(__file__).parents[3] / file).read_text(encoding="utf-8")
    assert text.count("stop_timeout") == 0  # the default holds there
    for found in re.findall(pattern, text):
        assert int(found) * 1000 > WorkerSettings().stop_timeout + 1000 * ending._BACKSTOP_SECONDS
    assert re.findall(pattern, text)
