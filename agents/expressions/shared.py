"""The evaluators of a pipeline's expressions that all raw partitions of a worker share.

An engine takes 4 MB before it has done anything, for its list of functions, and no setting makes that less. So a partition has none
of its own: for each piece of its records it borrows an evaluator that nobody else has at this moment. There are as many as were
ever needed at once, and no more than a few. Results are the same: an evaluation is a function of its records, an evaluator has its
limit of memory for itself while it is lent, and one whose borrower failed is not lent again.
"""

import contextlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from susurrus.agents.expressions.computation import Computation
from susurrus.agents.expressions.lookup import LookupTables
from susurrus.agents.expressions.typed import TypedComputation
from susurrus.topics.raw_batches import ComputedRows
from susurrus.topics.records.fields import Path
from susurrus.topics.records.payloads import Chunk
from susurrus.topics.records.raw import ComputedField
from susurrus.topics.records.scanning import FoundFields

MOST: Final = 8
"""How many evaluators there are at most. Between their queries all partitions wait for one interpreter lock, so more would idle."""


class _Evaluator:
    """One engine, and what has been prepared for it."""

    def __init__(self, computation: Computation) -> None:
        self.computation = computation
        self.typed = TypedComputation(computation)


class SharedComputation:
    """Does what `Computation` and `TypedComputation` do, for any number of threads. Arguments and errors as of `Computation`."""

    def __init__(self, scalars: Sequence[Path | ComputedField], where: str | None, tables: LookupTables) -> None:
        self._make = partial(Computation, scalars, where, tables)
        first = self._make()
        self.paths, self.asked = first.paths, first.asked
        self.computed = list(first.computed)
        self.idle = first.engine is None
        """Whether there are no expressions."""
        self._room = threading.BoundedSemaphore(MOST)
        self._lock = threading.Lock()
        self._free = [_Evaluator(first)]
        self._closed = False

    def applied(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """As `Computation.applied`."""
        return iter(chunks) if self.idle else map(self._apply, chunks)

    def of(self, found: FoundFields) -> ComputedRows:
        """As `TypedComputation.of`."""
        with self._lent() as evaluator:
            return evaluator.typed.of(found)

    def close(self) -> None:
        """End all engines; those that are lent, when they come back."""
        with self._lock:
            self._closed = True
            free, self._free = self._free, []
        for evaluator in free:
            evaluator.computation.close()

    def _apply(self, chunk: Chunk) -> Chunk:
        with self._lent() as evaluator:
            return evaluator.computation.apply(chunk)

    @contextlib.contextmanager
    def _lent(self) -> Iterator[_Evaluator]:
        """An evaluator for the block. Blocks must not be nested: each would hold what others wait for."""
        with self._room:
            with self._lock:
                # The last one that came back: the others stay unused, and are not made where one is enough.
                evaluator = self._free.pop() if self._free else None
            evaluator = evaluator or _Evaluator(self._make())
            good = False
            try:
                yield evaluator
                good = True
            finally:
                with self._lock:
                    good = good and not self._closed
                    if good:
                        self._free.append(evaluator)
                if not good:
                    evaluator.computation.close()
