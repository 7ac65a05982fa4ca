"""How long a record waits for a schema that the registry does not know (yet): by public instants and its own stamp only.

A record is bad input once its id is still unknown at ``patience`` after the record was stamped or appended, whichever came
first. Nobody says when a record was appended, and stamps can be forged ahead; but whoever looks at the log's end knows that
all below it had been appended by then. So a schema registered within ``patience`` is always found, and what is looked at
once a second while a record waits adds no waits up: see docs/guarantees/membership.md.
"""

from bisect import bisect_right


class Patience:
    """Of one partition. patience: ms. Instants are ms of the wall clock."""

    def __init__(self, patience: int) -> None:
        self._patience = patience
        self._ends: list[int] = []
        self._instants: list[int] = []
        """When the log was seen to end at each of ``_ends``, which increase."""

    def saw(self, end: int, now: int) -> None:
        """All records below ``end`` had been appended by ``now``. What was seen earlier of the same records says more."""
        if not self._ends or end > self._ends[-1]:
            self._ends.append(end)
            self._instants.append(now)

    def passed(self, position: int) -> None:
        """Records below ``position`` are asked for no more."""
        number = bisect_right(self._ends, position)
        del self._ends[:number], self._instants[:number]

    def over(self, offset: int, stamp: int, now: int) -> bool:
        """Whether a record whose schema is unknown at ``now`` has waited long enough."""
        number = bisect_right(self._ends, offset)
        appended = self._instants[number] if number < len(self._ends) else now
        return now >= min(stamp, appended) + self._patience
