"""The compiled loops of this package, where they were built: ``compiled`` is the extension module, or None.

They are an option (decision 34). Every function that has a compiled form also has one in Python, with the same results, and the
tests compare both. SUSURRUS_COMPILED=0 in the environment turns them off.
"""

import os
from typing import Any


def _find() -> Any:
    if os.environ.get("SUSURRUS_COMPILED", "1") == "0":
        return None
    try:
        from susurrus.topics import _compiled  # type: ignore[attr-defined,unused-ignore]
    except ImportError:  # built without a Rust compiler
        return None
    return _compiled


compiled: Any = _find()
