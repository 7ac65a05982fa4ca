"""What one check found."""

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "failure", "unknown"]


@dataclass(frozen=True, slots=True)
class Finding:
    """subject: what was looked at. text: what was found; unless all is well, it ends with what to do.

    A worker runs with a warning. It does not start, or soon stops, with a failure. unknown: this user may not ask, or Kafka did not
    answer.
    """

    subject: str
    state: State
    text: str
