"""No cycles among what a stage leaves behind: a worker hardly ever runs the collector that would find them."""

import contextlib
import gc
from collections import Counter
from collections.abc import Iterator
from types import CodeType, FrameType, FunctionType, GeneratorType
from typing import Any

_OURS = "susurrus."


@contextlib.contextmanager
def no_cycles() -> Iterator[None]:
    """The block leaves nothing of ours that refers to itself: its memory goes with the last reference to it.

    What libraries and other threads leave does not count.
    """
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield
        gc.collect()
        left = Counter(name for thing in gc.garbage if (name := _name(thing)) is not None)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert not left, f"only the garbage collector would free these: {dict(left)}"


def _name(thing: Any) -> str | None:
    """What to call an instance of a class of ours, a function, or the frame or generator of one; None for anything else."""
    code: CodeType | None = None
    if isinstance(thing, FrameType):
        code = thing.f_code
    elif isinstance(thing, GeneratorType):
        code = thing.gi_code
    if code is not None:
        return code.co_qualname if "/susurrus/" in code.co_filename else None
    of = thing if isinstance(thing, FunctionType | type) else type(thing)
    return of.__qualname__ if (of.__module__ or "").startswith(_OURS) else None
