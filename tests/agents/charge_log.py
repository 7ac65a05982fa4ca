"""A log of charges in a list, for tests without a broker."""

from collections.abc import Callable, Sequence

from susurrus.agents.kafka.clients import TopicRecord
from susurrus.topics import charges as codec


class ChargeLog:
    """What `Charges` and `Account` ask of their clients. shown: how many records a hasty look sees."""

    def __init__(self, charges: Sequence[codec.Charge] = (), *, shown: int | None = None) -> None:
        self.rows = [codec.encode(charge) for charge in charges]
        self.shown = shown
        self.before_the_next: Callable[[], codec.Charge] | None = None

    def partitions(self, topic: str) -> int:
        return 1

    def read(self, topic: str, start: int, *, group: str, complete: bool) -> list[TopicRecord]:
        seen = self.rows if complete else self.rows[: self.shown]
        return [TopicRecord(key, value, offset) for offset, (key, value) in enumerate(seen) if offset >= start]

    # ---- the producer of a command -----------------------------------------------------------------------------------

    def producer(self) -> "ChargeLog":
        return self

    def produce(
        self, topic: str, value: bytes, key: bytes, *, partition: int, on_delivery: Callable[[object, object], None]
    ) -> None:
        if self.before_the_next is not None:
            self.rows.append(codec.encode(self.before_the_next()))
        self.rows.append((key, value))
        on_delivery(None, None)

    def poll(self, timeout: float) -> None: ...

    def __len__(self) -> int:
        """Records that wait for the brokers."""
        return 0
