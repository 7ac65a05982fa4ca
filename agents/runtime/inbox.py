"""What reaches a partition task from the event loop: batches, and the group's generation in which they count."""

import queue
import threading

from susurrus.agents.runtime.batch import Batch


class Inbox:
    """Batches on their way to a task's thread. Thread-safe; nothing here blocks the event loop."""

    def __init__(self) -> None:
        self._batches: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False
        self._woken = False
        self._generation = -1
        self._reassigned = False

    def assigned(self, generation: int) -> None:
        """The group gave us the partition in this generation; batches of others do not count."""
        with self._lock:
            self._generation = generation
            self._reassigned = True
        self.wake()

    def generation(self) -> tuple[int, bool]:
        """The generation, and whether the group has assigned the partition since this was asked last."""
        with self._lock:
            reassigned, self._reassigned = self._reassigned, False
            return self._generation, reassigned

    def offer(self, batch: Batch) -> None:
        """Put a batch in. A closed inbox gives it back: otherwise a successor on this worker would never be fed."""
        with self._lock:
            if self._closed:
                batch.finish()
            else:
                self._batches.put(batch)

    def take(self, seconds: float = 0.0) -> Batch | None:
        """The next batch, waited for; None where none comes, or after `wake`."""
        try:
            batch = self._batches.get(block=seconds > 0, timeout=seconds or None)
        except queue.Empty:
            return None
        if batch is None:
            with self._lock:
                self._woken = False
        return batch

    def wake(self) -> None:
        """End the wait in `take`, or the next one. However often it is called before that, one wait ends."""
        with self._lock:
            if not self._woken:
                self._woken = True
                self._batches.put(None)

    def drain(self) -> None:
        """Give back what is in it."""
        while not self._batches.empty():
            if (batch := self.take()) is not None:
                batch.finish()

    def close(self) -> None:
        """Give back what is in it, and what comes later."""
        with self._lock:
            self._closed = True
        self.drain()
