"""The ledger as tasks see it: beginning, joining, and the refusal of a member with other settings."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from confluent_kafka import KafkaError, KafkaException

from susurrus.agents.histogram.pipeline import HistogramPipeline
from susurrus.agents.kafka.clients import TopicRecord
from susurrus.agents.pipelines import pipeline_of
from susurrus.agents.runtime.ledger import Ledger
from susurrus.mechanisms.calendar import WindowIndex
from susurrus.mechanisms.errors import Refusal
from susurrus.mechanisms.guarantee import Guarantee
from susurrus.topics.ledger import AddedTopic, Epoch, SourcesRecord, Start, encode
from susurrus.topics.progress import Progress
from susurrus.topics.sources import Run
from tests.agents.charge_log import ChargeLog
from tests.agents.released import settings
from tests.agents.stages import WINDOW

SECRET = b"\x5a" * 32
Row = tuple[bytes, bytes | None]


class Clients:
    """One raw topic of two partitions, and a ledger. shown: how much of that a hasty look sees."""

    policy, stamped = "delete", "LogAppendTime"
    embedded = False
    ends: ClassVar[dict[str, int]] = {}

    def __init__(self, log: list[Row], shown: int | None) -> None:
        self.log, self.shown = log, shown
        self.reads: list[int] = []

    def settings_of(self, topic: str) -> dict[str, str]:
        return {"cleanup.policy": self.policy, "message.timestamp.type": self.stamped}

    def topic_id(self, topic: str) -> str:
        return "raw-1"

    def partitions(self, topic: str) -> int:
        return 2

    begins: ClassVar[list[int]] = [0, 0]

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        if topic.endswith(".ledger"):
            return 0, len(self.log)
        return self.begins[partition], self.ends.get(topic, 7)

    def read_up_to(
        self, end: int, topic: str, start: int, *, group: str, complete: bool
    ) -> tuple[list[TopicRecord], int]:
        seen = self.log if complete else self.log[: self.shown]
        self.reads.append(start)
        found = [TopicRecord(key, value, offset) for offset, (key, value) in enumerate(seen) if offset >= start]
        return found, len(seen)


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


class Public:
    """What readers have seen."""

    topic = "progress"

    def __init__(self, *seen: Progress) -> None:
        self.seen = seen

    def refresh(self) -> None: ...

    def newest(self) -> Progress | None:
        return self.seen[-1] if self.seen else None


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
        public: Public | None = None,
        **sections: Any,
    ) -> Listed:
        start = {"from": "earliest", "first_window": WINDOW, **sections.pop("start", {})}
        configured = settings(start=start, **sections)
        clients, pipeline = Clients(log, shown), pipeline_of(configured)
        if isinstance(pipeline, HistogramPipeline):
            pipeline._progress = lambda clients: public or Public()  # type: ignore
        ledger = Listed(
            configured,
            clients,  # type: ignore[arg-type]
            configured.calendar,
            config_digest=digest,
            secret=secret,
            initializer=("release", 0),
            way_out=pipeline.way_out,
            published_before=lambda: pipeline.published_before(clients),  # type: ignore[arg-type]
        )
        ledger.log = log
        if only_ask:
            ledger.admit()
            return ledger
        ledger.join(Member(), Producer(log))  # type: ignore[arg-type]
        return ledger

    return join


def test_the_second_worker_finds_what_the_initializer_wrote(join: Callable[..., Listed]) -> None:
    epoch = join().epoch
    again = join()
    assert again.epoch == epoch
    assert again.start.offsets == {0: 0, 1: 0}


def test_a_pipeline_that_begins_again_under_its_name_gets_another_epoch(
    join: Callable[..., Listed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Same name, configuration, secret and even the same millisecond: only an epoch from dice keeps the noise from coming back."""
    monkeypatch.setattr("susurrus.agents.runtime.ledger.time", SimpleNamespace(time=lambda: WINDOW / 1000))
    epochs = []
    for _ in range(3):
        ledger = join()
        epochs.append(bytes.fromhex(ledger.epoch))
        ledger.log.clear()  # its topics are deleted
    assert len(set(epochs)) == 3
    assert {len(epoch) for epoch in epochs} == {16}


def test_an_epoch_that_does_not_show_yet_is_not_begun_a_second_time(join: Callable[..., Listed]) -> None:
    epoch = join().epoch
    for shown in range(3):
        assert join(shown=shown).epoch == epoch
    assert join().epoch == epoch


SEEN = Progress(window=WINDOW, trigger=7, of_triggers=9, partition=0, of_partitions=1, rows=0, epoch="ab")


@pytest.mark.parametrize("start", [{}, {"epoch": "ab"}, {"epoch": "cd"}])
def test_a_pipeline_that_has_published_is_not_begun_a_second_time(
    join: Callable[..., Listed], start: dict[str, str]
) -> None:
    """Not with the same epoch either, where the configuration names it: its noise was drawn over other data."""
    with pytest.raises(Refusal, match=r"trigger=7 of window=1995-08-01T00:00:00Z, but .* is empty.*new-epoch`"):
        join(public=Public(SEEN), start=start)
    assert not join(only_ask=True).log
    assert join(public=Public()).epoch
    assert join(public=Public(SEEN)).epoch  # it has begun: release compares


def test_an_initializer_that_another_one_has_overtaken_does_not_take_its_triggers_for_an_earlier_life(
    join: Callable[..., Listed],
) -> None:
    other = join()
    records = list(other.log)
    other.log.clear()

    class Overtaken(Public):
        def refresh(self) -> None:
            """Meanwhile the other has begun, and released."""
            other.log[:] = records

    assert join(public=Overtaken(SEEN)).epoch == other.epoch
    assert other.log == records


def test_a_worker_that_was_away_when_an_epoch_began_is_to_be_restarted(join: Callable[..., Listed]) -> None:
    worker = join()
    worker.join(Member(), Producer(worker.log))  # type: ignore[arg-type]
    old = worker.epoch
    start = Start(
        first_window=WINDOW,
        origin="latest",
        topic_ids={"raw": "raw-1"},
        sources=(Run("raw", 0, 2),),
        offsets={},
        internal={"x.bounded": {1: 77}},
    )
    worker.log += [encode(start), encode(Epoch(epoch="cd" * 16, number=2, created=1))]
    with pytest.raises(Refusal, match=r"epoch=2 has begun while this worker was away.*: restart it"):
        worker.join(Member(), Producer(worker.log))  # type: ignore[arg-type]
    fresh = join()
    assert (fresh.epoch, fresh.epoch_number) == ("cd" * 16, 2)
    assert fresh.epoch != old
    assert [fresh.begins(*place) for place in (("x.bounded", 1), ("x.bounded", 0), ("x.by-user", 1))] == [77, 0, 0]


def test_whoever_joins_reads_the_ledger_to_the_end_that_its_leader_tells(join: Callable[..., Listed]) -> None:
    """`susurrus ledger new-epoch` may have an open transaction there, and its outcome decides which epoch is in force."""
    join()
    join().log.append(encode(Epoch(epoch="cd" * 16, number=2, created=1)))
    assert join(shown=3).epoch == "cd" * 16


def test_the_ledger_is_read_where_it_has_grown_and_read_again_where_records_were_hidden(
    join: Callable[..., Listed],
) -> None:
    ledger = join()

    def reads(shown: int | None = None) -> list[int]:
        """Where the reads of two looks began."""
        clients.reads, clients.shown = [], shown
        ledger.refresh()
        ledger.refresh()
        return clients.reads

    clients: Any = ledger._clients
    size = len(ledger.log)
    assert not reads(), "it was read when the task joined"
    ledger.log += [encode(AddedTopic(topic=f"raw-{number}", at=1)) for number in range(2)]
    assert reads(shown=size + 1) == [size, size + 1], "the second record is hidden: a replica lags"
    assert reads() == [size + 1]
    assert ledger.asked_for == ("raw-0", "raw-1")


def test_a_charge_needs_no_record_on_a_raw_topic_that_joined_when_the_window_was_over(
    join: Callable[..., Listed],
) -> None:
    """Release may be days behind source 0, which announces the topic and charges the windows that are open then."""
    ledger = join()
    calendar, log = ledger._calendar, ChargeLog()
    clients: Any = log
    ledger.charges._clients = clients
    promise = Guarantee(epsilon=6.0, delta=2e-9, mu=0.9, delta_gaussian=1e-9, delta_selection=1e-9)
    starts = [calendar.window_start(WindowIndex(ledger.first_window + n)) for n in range(3)]

    def charges(window: int, *topics: str) -> None:
        output = ledger.charges.output(window, ledger.epoch, promise, topics or None)
        log.rows += [(message["key"], message["value"]) for message in output.messages]

    charges(starts[0])
    charges(starts[1])
    joins = calendar.first_interval(WindowIndex(ledger.first_window + 1)) + 1
    runs = (Run("raw", 0, 2), Run("added", 0, 1))
    ledger.log.append(
        encode(SourcesRecord(number=3, from_interval=joins, sources=runs, topic_ids={"added": "added-1"}))
    )
    ledger.refresh()
    assert ledger.raw_topics == ("raw", "added")
    assert ledger.is_charged(starts[0])
    assert not ledger.is_charged(starts[1]), "its records of the other topic are not paid for yet"
    charges(starts[1], "added")
    assert ledger.is_charged(starts[1])
    charges(starts[2])
    assert ledger.is_charged(starts[2])
    assert ledger.charges.charged_topics(starts[2], ledger.epoch) == {"raw", "added"}


STREAM: dict[str, Any] = {
    "pipeline": {"name": "p", "prefix": "t", "kind": "stream"},
    "stream": {"bound": 1.0, "epsilon": 1.0},
    "input": {"topic": "raw"},
    "privacy": None,
    "window": {},
}


def test_a_stream_that_has_published_is_not_begun_a_second_time_either(
    join: Callable[..., Listed], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Refusal, match=r"topic=t\.p\.private-stream has been written, but .* is empty.*a new name"):
        join(**STREAM)
    monkeypatch.setattr(Clients, "ends", {"t.p.private-stream": 0})
    assert join(**STREAM).epoch


def test_the_way_out_of_lost_state_is_one_that_the_kind_of_pipeline_has(join: Callable[..., Listed]) -> None:
    assert join(only_ask=True).way_out.startswith("run `susurrus ledger new-epoch`")
    other = join(only_ask=True, **STREAM)
    assert other.way_out == "give the pipeline a new name to start over"


def test_another_configuration_is_refused_by_the_names_of_its_fields(join: Callable[..., Listed]) -> None:
    join()
    with pytest.raises(Refusal, match=r"\(fields: bounds\)"):
        join(digest=b"e" * 32, bounds={"max_records_per_user": 3})


def test_another_secret_is_refused_and_neither_secret_is_shown(join: Callable[..., Listed]) -> None:
    ledger = join()
    with pytest.raises(Refusal, match="the secret differs from the one") as refused:
        join(secret=b"\x5b" * 32)
    shown = str(refused.value).encode() + b"".join(value or b"" for _, value in ledger.log)
    assert SECRET not in shown
    assert SECRET.hex().encode() not in shown
    join()


def test_who_asks_before_joining_hears_the_same_and_nothing_while_there_is_no_pipeline(
    join: Callable[..., Listed], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not join(only_ask=True, secret=b"\x5b" * 32).log  # asking founds nothing
    join()
    join(only_ask=True)
    with pytest.raises(Refusal, match="the secret differs from the one"):
        join(only_ask=True, secret=b"\x5b" * 32)
    with pytest.raises(Refusal, match=r"\(fields: bounds\)"):
        join(only_ask=True, digest=b"e" * 32, bounds={"max_records_per_user": 3})

    def away(*_: object, **__: object) -> None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    monkeypatch.setattr(Clients, "read_up_to", away)
    join(only_ask=True, secret=b"\x5b" * 32)  # the tasks will ask again


def test_a_compacted_raw_topic_is_refused_before_anything_is_begun(
    join: Callable[..., Listed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There, one user's record deletes another's: no bound on one user's influence could hold."""
    monkeypatch.setattr(Clients, "policy", "compact,delete")
    with pytest.raises(Refusal, match=r"cleanup\.policy=delete"):
        join()


@pytest.mark.parametrize("only_ask", [True, False])
def test_a_raw_topic_that_is_stamped_otherwise_than_the_clock_says_is_refused_before_anything_is_begun(
    join: Callable[..., Listed], monkeypatch: pytest.MonkeyPatch, only_ask: bool
) -> None:
    """By the worker before it joins, and by the initializer: Kafka's default and ours do not meet."""
    live = {"start": {"first_window": WINDOW, "from": "latest"}}
    monkeypatch.setattr(Clients, "stamped", "CreateTime")
    with pytest.raises(
        Refusal, match=r'nothing is charged: set clock\.kind = "producer" in the file, or .*=LogAppendTime'
    ):
        join(only_ask=only_ask, **live)
    assert join(only_ask=True, clock={"kind": "producer"}, **live).log == []
    assert join(clock={"kind": "producer"}, **live).log
    monkeypatch.setattr(Clients, "stamped", "LogAppendTime")
    join(clock={"kind": "producer"}, only_ask=only_ask, **live)  # it has begun: its records have a fate


ARCHIVE: dict[str, Any] = {"clock": {"kind": "replay", "until": WINDOW + 86_400_000}}


@pytest.mark.parametrize("only_ask", [True, False])
def test_an_archive_that_is_deleted_is_not_taken_for_an_empty_one(
    join: Callable[..., Listed], monkeypatch: pytest.MonkeyPatch, only_ask: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Told by the log's start. A part that is gone is said; a live topic is no matter."""
    monkeypatch.setattr(Clients, "begins", [7, 7])
    with pytest.raises(
        Refusal, match=r"up to offset=7, and they are deleted, .*nothing is charged: write the archive again"
    ):
        join(only_ask=only_ask, **ARCHIVE)
    assert join(only_ask=True).log == []  # a live one
    assert not caplog.messages
    monkeypatch.setattr(Clients, "begins", [0, 3])
    join(only_ask=only_ask, **ARCHIVE)
    assert any("the first records of partition 1 are deleted, up to offset 3" in text for text in caplog.messages)


@pytest.mark.parametrize("only_ask", [True, False])
def test_whether_a_pipeline_begins_does_not_depend_on_there_being_a_record(
    join: Callable[..., Listed], monkeypatch: pytest.MonkeyPatch, only_ask: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """All records of an archive may be of one user. That there are none is said inside the trust zone only."""
    monkeypatch.setattr(Clients, "ends", {"raw": 0})
    join(only_ask=only_ask, **ARCHIVE)
    assert any("topic=raw holds no record: nothing was ever written" in text for text in caplog.messages)


@pytest.mark.parametrize("only_ask", [True, False])
def test_rows_that_kafka_would_delete_at_once_are_not_begun(join: Callable[..., Listed], only_ask: bool) -> None:
    with pytest.raises(
        Refusal, match=r'^topics\.retention = "7d", but .*nothing is charged: set topics\.retention above'
    ):
        join(only_ask=only_ask, topics={"retention": "7d"}, **ARCHIVE)
    assert join(only_ask=True, topics={"retention": "36500d"}, **ARCHIVE).log == []
    assert join(only_ask=True, topics={"retention": "7d"}).log == []  # a live one
    assert join(topics={"retention": "36500d"}, **ARCHIVE).log


def test_a_raw_partition_joins_where_it_was_first_announced_however_often_the_topic_grew(
    join: Callable[..., Listed],
) -> None:
    ledger = join()
    assert ledger.joined(2) is None
    for number, interval in ((3, 7), (6, 20), (8, 31)):
        ledger.log.append(
            encode(SourcesRecord(number=number, from_interval=interval, sources=(Run("raw", 0, number),)))
        )
    found = [ledger.joined(partition) for partition in range(2, 9)]
    assert [a and a.from_interval for a in found] == [7, 20, 20, 20, 31, 31, None]


def reading(*topics: str) -> dict[str, Any]:
    return {"topics": list(topics), "user": "host", "key": ["url"]}


def test_the_list_of_topics_grows_by_what_was_added_and_not_otherwise(join: Callable[..., Listed]) -> None:
    first = join(input=reading("raw"))
    with pytest.raises(Refusal, match=r"topic=more is none of those that this pipeline reads.*add-input"):
        join(input=reading("raw", "more"))
    first.log.append(encode(AddedTopic(topic="more", at=1)))
    assert join(input=reading("raw", "more")).epoch == first.epoch
    assert join(input={"topic": "raw", "user": "host", "key": ["url"]}).epoch == first.epoch


def test_a_topic_that_was_read_from_the_beginning_stays_in_the_list(join: Callable[..., Listed]) -> None:
    join(input=reading("raw", "more"))
    with pytest.raises(Refusal, match="topic=more is missing"):
        join(input=reading("raw"))


def test_before_the_ledger_names_sources_only_the_partitions_of_a_single_topic_have_numbers(
    join: Callable[..., Listed],
) -> None:
    one, several = join(only_ask=True), join(only_ask=True, input=reading("raw", "more"))
    assert one.number("raw", 3) == 3
    assert several.number("raw", 0) is None
    begun = join(input=reading("raw", "more"))
    assert [begun.number(*begun.place(source)) for source in range(len(begun.sources or ()))] == [0, 1, 2, 3]
    assert begun.number("raw", 9) is None
    with pytest.raises(Refusal, match="does not name source=4"):
        begun.place(4)
