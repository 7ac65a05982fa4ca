"""How long a record waits for a schema that the registry does not know yet: by public instants and its own stamp only.

A record is bad input once its schema's id is still unknown at ``patience`` after the record was stamped or appended, whichever came
first. Kafka does not record when a record was appended, and a stamp can be forged to lie ahead. But everything below the log's end
had been appended when that end was seen. So a schema registered within ``patience`` is always found. The end is looked at once a
second while a record waits, so that waits do not add up: see docs/guarantees/membership.md.
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
        """All records below ``end`` had been appended by ``now``. An earlier look at the same records is the better bound."""
        if not self._ends or end > self._ends[-1]:
            self._ends.append(end)
            self._instants.append(now)

    def passed(self, position: int) -> None:
        """Records below ``position`` wait no more."""
        number = bisect_right(self._ends, position)
        del self._ends[:number], self._instants[:number]

    def over(self, offset: int, stamp: int, now: int) -> bool:
        """Whether a record whose schema is unknown at ``now`` has waited long enough."""
        number = bisect_right(self._ends, offset)
        appended = self._instants[number] if number < len(self._ends) else now
        return now >= min(stamp, appended) + self._patience
