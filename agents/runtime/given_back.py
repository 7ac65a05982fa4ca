"""Memory that is free in this process, given back to the machine.

glibc keeps what is freed for the thread's next use, in up to eight arenas a core, and gives back only what lies at an arena's end.
A worker has hundreds of threads. So what a backlog took stayed with it: 56 of 120 MB that libraries had taken were free.
"""

import ctypes
from collections.abc import Callable
from typing import Final


def _found() -> Callable[[int], object]:
    try:
        trim = ctypes.CDLL(None).malloc_trim  # of glibc alone
    except (AttributeError, OSError, TypeError):
        return lambda left: None
    trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    return trim


_trim: Final = _found()


def give_back() -> None:
    """Give back whole pages that nobody uses, of all arenas, in some milliseconds. Where the C library cannot, it does nothing."""
    _trim(0)
