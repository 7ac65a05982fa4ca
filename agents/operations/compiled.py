"""Whether this process runs the compiled loops (decision 34), as an operator reads it: in a worker's log, and from preflight.

Results are the same either way; only the speed differs. topics/compiled.py and mechanisms/compiled.py look for the modules.
"""

import logging
import os
from typing import Final

from susurrus.mechanisms import compiled as mechanisms
from susurrus.topics import compiled as topics

_log = logging.getLogger(__name__)
_RUST: Final = "1.83"
"""The version that topics/rust/Cargo.toml and mechanisms/rust/Cargo.toml ask for."""


def path_taken() -> tuple[bool, str]:
    """(whether both modules are loaded, one sentence; where they are not, what that costs and what to do)."""
    if topics.compiled is not None and mechanisms.compiled is not None:
        return True, "the hot loops are compiled"
    costs = "the hot loops run in pure Python: the same results, for about twice the processor time per record"
    if os.environ.get("SUSURRUS_COMPILED", "1") == "0":
        return False, f"SUSURRUS_COMPILED=0: {costs}; unset it to use the compiled ones"
    return False, (
        f"{costs}; install Susurrus from a wheel for this platform, or install Rust {_RUST} or later and then Susurrus again"
    )


def say() -> None:
    """One line in the log, for the start of a process: a warning where the loops are not compiled."""
    loaded, text = path_taken()
    _log.log(logging.INFO if loaded else logging.WARNING, "%s", text)
