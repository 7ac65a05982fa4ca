"""The ledger as tasks see it: founding, joining, and what a member with other settings is told."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from susurrus.agents.app import calendar_of
from susurrus.agents.ledger import Ledger
from susurrus.mechanisms.errors import Refusal
from susurrus.topics.ledger import Sources, encode
from tests.agents.released import settings
from tests.agents.stages import WINDOW

SECRET = b"\x5a" * 32
Row = tuple[bytes, bytes | None]


class Clients:
    """One raw topic of two partitions."""

    policy = "delete"

    def cleanup_policy(self, topic: str) -> str:
        return self.policy

    def topic_id(self, topic: str) -> str:
        return "raw-1"

    def partitions(self, topic: str) -> int:
        return 2

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        return 0, 7


class Producer:
    """Appends to a list at the commit."""

    def __init__(self, log: list[Row]) -> None:
        self._log, self._open = log, list[Row]()

    def begin_transaction(self) -> None:
        self._open = []

    def produce(self, topic: str, value: bytes | None, key: bytes, partition: int) -> None:
        self._open.append((key, value))

    def commit_transaction(self, timeout: float) -> None:
        self._log += self._open


class Listed(Ledger):
    """A ledger over a list."""

    log: list[Row]
    shown: int | None = None
    """How much of it a hasty look sees."""

    def _read(self, topic: str, start: int, *, complete: bool = False) -> list[tuple[bytes, bytes | None, int]]:
        seen = self.log if complete else self.log[: self.shown]
        return [(key, value, offset) for offset, (key, value) in enumerate(seen) if offset >= start]


class Member:
    stage_name, partition = "release", 0

    def waiting(self) -> bool:
        return False


@pytest.fixture
def join() -> Callable[..., Listed]:
    log: list[Row] = []

    def join(
        *,
        secret: bytes = SECRET,
        digest: bytes = b"d" * 32,
        shown: int | None = None,
        only_ask: bool = False,
        **sections: Any,
    ) -> Listed:
        configured = settings(start={"from": "earliest", "first_window": WINDOW}, **sections)
        ledger = Listed(
            configured,
            Clients(),  # type: ignore[arg-type]
            calendar_of(configured),
            config_digest=digest,
            secret=secret,
            founder=("release", 0),
        )
        ledger.log, ledger.shown = log, shown
        if only_ask:
            ledger.admit()
            return ledger
        ledger.join(Member(), Producer(log))  # type: ignore[arg-type]
        return ledger

    return join


def test_the_second_worker_finds_what_the_founder_wrote(join: Callable[..., Listed]) -> None:
    epoch = join().epoch
    again = join()
    assert again.epoch == epoch
    assert again.start.offsets == {0: 0, 1: 0}


def test_an_epoch_that_does_not_show_yet_is_not_founded_a_second_time(join: Callable[..., Listed]) -> None:
    epoch = join().epoch
    for shown in range(3):
        assert join(shown=shown).epoch == epoch
    assert join().epoch == epoch


def test_another_configuration_is_refused_by_the_names_of_its_fields(join: Callable[..., Listed]) -> None:
    join()
    with pytest.raises(Refusal, match=r"\(fields: bounds\)"):
        join(digest=b"e" * 32, bounds={"max_records_per_user": 3})


def test_another_secret_is_refused_and_neither_secret_is_told(join: Callable[..., Listed]) -> None:
    ledger = join()
    with pytest.raises(Refusal, match="the secret is another one") as refused:
        join(secret=b"\x5b" * 32)
    told = str(refused.value).encode() + b"".join(value or b"" for _, value in ledger.log)
    assert SECRET not in told
    assert SECRET.hex().encode() not in told
    join()


def test_who_asks_before_joining_hears_the_same_and_nothing_while_there_is_no_pipeline(
    join: Callable[..., Listed], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not join(only_ask=True, secret=b"\x5b" * 32).log  # asking founds nothing
    join()
    join(only_ask=True)
    with pytest.raises(Refusal, match="the secret is another one"):
        join(only_ask=True, secret=b"\x5b" * 32)
    with pytest.raises(Refusal, match=r"\(fields: bounds\)"):
        join(only_ask=True, digest=b"e" * 32, bounds={"max_records_per_user": 3})

    def away(*_: object, **__: object) -> None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    monkeypatch.setattr(Listed, "_read", away)
    join(only_ask=True, secret=b"\x5b" * 32)  # the tasks will ask again


def test_a_compacted_raw_topic_is_refused_before_anything_is_founded(
    join: Callable[..., Listed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There, one user's record deletes another's: no bound on one user's influence could hold."""
    monkeypatch.setattr(Clients, "policy", "compact,delete")
    with pytest.raises(Refusal, match=r"cleanup\.policy=delete"):
        join()


def test_a_raw_partition_joins_where_it_was_first_announced_however_often_the_topic_grew(
    join: Callable[..., Listed],
) -> None:
    ledger = join()
    assert ledger.joined(2) is None
    for number, slot in ((3, 7), (6, 20), (8, 31)):
        ledger.log.append(encode(Sources(number=number, from_slot=slot)))
    found = [ledger.joined(partition) for partition in range(2, 9)]
    assert [a and a.from_slot for a in found] == [7, 20, 20, 20, 31, 31, None]
