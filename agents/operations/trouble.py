"""Why a worker cannot start now: what the checks of this folder find."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a worker cannot start. waits: the cause may go away by itself."""

    text: str
    waits: bool


def wait(text: str) -> Trouble:
    """Trouble that may pass."""
    return Trouble(text, waits=True)


def refusal(*lines: str) -> Trouble:
    """Trouble that an operator must end."""
    return Trouble("\n".join(lines), waits=False)
