"""How far each source has been read, as bound sees it: a source that begins to repeat itself was put back.

A source, one route partition, takes every raw offset once, and a by-user partition has its blocks in the order of their offsets. So
a block that does not lie above what came before it was written by a route whose changelog is an older copy; counted, its records
would count twice. Blocks that are read again after a restart are no repetition: what a commit carries is what came before the
position it claims, as with the ticks in open_slots.py.
"""

from collections import deque
from collections.abc import Mapping

from susurrus.agents.ledger import NEW_EPOCH
from susurrus.mechanisms.errors import Refusal


class SourceOffsets:
    """The highest raw offset taken of each source, now and as of the position that a commit may claim."""

    def __init__(self, place: str, known: Mapping[int, int]) -> None:
        """``place``: what a refusal calls the input. ``known``: of the last commit, as ``to_meta`` told."""
        self._place = place
        self._base = {int(source): int(offset) for source, offset in known.items()}
        self._live = dict(self._base)
        self._recent: deque[tuple[int, int, int]] = deque()

    def take(self, source: int, first: int, last: int, offset: int) -> None:
        """A block at input offset ``offset`` brings raw offsets from ``first`` to ``last``. Raises Refusal for a repetition."""
        known = self._live.get(source, -1)
        if first <= known:
            raise Refusal(
                f"{self._place} offset={offset}: source={source} brings raw offsets from {first} on, but has come up to {known} "
                "before, so the changelog of route is an older copy, and records would count twice: restore it as it was at the "
                f"last commit, or {NEW_EPOCH}"
            )
        self._live[source] = last
        self._recent.append((offset, source, last))

    def to_meta(self, position: int) -> dict[int, int]:
        """The part that a commit carries: of blocks below its position only."""
        while self._recent and self._recent[0][0] < position:
            _, source, last = self._recent.popleft()
            self._base[source] = last
        return dict(self._base)
