"""What the C library holds of freed memory goes back to the machine."""

import ctypes
import subprocess
import sys
import textwrap

import pytest

from susurrus.agents.runtime.given_back import give_back

PROGRAM = """
    import ctypes, os, threading
    from susurrus.agents.runtime.given_back import give_back

    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]

    def fill_and_free():
        # In this thread's arena. Every hundredth piece stays, so that nothing is free at the arena's end.
        pieces = [libc.malloc(2_000) for _ in range(30_000)]
        for piece in pieces:
            ctypes.memset(piece, 1, 2_000)
        for number, piece in enumerate(pieces):
            if number % 100 != 99:
                libc.free(piece)

    thread = threading.Thread(target=fill_and_free)
    thread.start()
    thread.join()
    before = resident()
    give_back()
    print(before - resident())
"""


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or not hasattr(ctypes.CDLL(None), "malloc_trim"),
    reason="resident memory is read from /proc, and glibc alone can give it back",
)
def test_pages_that_nobody_uses_are_given_back_of_every_arena() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)], capture_output=True, text=True, check=True, timeout=120
    )
    assert int(done.stdout) > 30_000_000


def test_it_may_be_called_where_nothing_is_free() -> None:
    for _ in range(3):
        give_back()
