"""Whether this process runs the compiled loops (decision 34), as an operator reads it: in a worker's log and on its page, from
preflight, and from `susurrus --version`.

Results are the same either way; only the speed differs. topics/compiled.py and mechanisms/compiled.py look for the modules.
"""

import os
from typing import Final

from susurrus.agents.finding import Finding
from susurrus.mechanisms import compiled as mechanisms
from susurrus.topics import compiled as topics

_RUST: Final = "1.83"
"""The version that topics/rust/Cargo.toml and mechanisms/rust/Cargo.toml ask for."""


def finding() -> Finding:
    """Ok where both modules are loaded; otherwise a warning, with what that costs."""
    if topics.compiled is not None and mechanisms.compiled is not None:
        # As they are built together, one compiler built both. Cargo alone, without setup.py, leaves no name.
        built_by = getattr(topics.compiled, "BUILT_BY", None)
        return Finding("compiled loops", "ok", "the hot loops are compiled" + (f", by {built_by}" if built_by else ""))
    text = "the hot loops run in pure Python: the same results, for two to four times the processor time per record"
    action = (
        f"install Susurrus from a wheel for this platform, or install Rust {_RUST} or later and then Susurrus again"
    )
    if os.environ.get("SUSURRUS_COMPILED", "1") == "0":
        text, action = f"SUSURRUS_COMPILED=0: {text}", "unset it to use the compiled ones"
    return Finding("compiled loops", "warning", text, action)
