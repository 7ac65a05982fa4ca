"""What rows of private streams say where they say nothing more than the plain sums."""

from typing import Any

import numpy as np

UNSAID: dict[str, Any] = {
    "fit": None,
    "jump_first": None,
    "jump_last": None,
    "lower": None,
    "clipped": None,
    "truncated": None,
}
"""Members of one row."""


def unsaid(n: int) -> dict[str, Any]:
    """Columns of n rows."""
    missing = ("fit", "clipped", "clipped_error", "truncated", "truncated_error")
    nowhere = {name: np.full(n, -1) for name in ("jump_first", "jump_last")}
    return nowhere | {name: np.full(n, np.nan) for name in missing} | {"lower": np.zeros(n)}
