"""A feed survives what happens to Kafka, keeps what it has read, and says in public only what the public may know."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from susurrus.agents.config.settings import Settings
from susurrus.agents.dashboard import feed as module
from susurrus.agents.dashboard.feed import Feed
from susurrus.agents.display.board import Board, Query
from susurrus.agents.finding import Finding
from susurrus.agents.kafka.clients import Clients
from tests.agents.dashboard.published import charge, create, dashboard, write
from tests.agents.released import WINDOW, rows, said, settings
from tests.broker import Broker, wait_for


class Scripted(Board):
    """Polls by calling what the test puts there."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.script: Callable[[], Any] = lambda: None
        self.opens: Callable[[], None] = lambda: None
        self.known: list[Any] = []

    def open(self, clients: Clients) -> None:
        self.opens()

    @property
    def caught_up(self) -> bool:
        return True

    def poll(self, seconds: float) -> Any:
        return self.script()

    def take(self, news: Any) -> bool:
        self.known.append(news)
        return True

    def state(self, now: int) -> dict[str, Any]:
        return {"known": list(self.known)}

    def answer(self, question: str, query: Query) -> dict[str, Any]:
        return {}


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AGAIN_SECONDS", 0.05)
    monkeypatch.setattr(module, "_CHECK_SECONDS", 0.05)


def running(board: Scripted) -> Feed:
    feed = Feed(board.settings, board)
    feed.start()
    return feed


def kind(feed: Feed) -> str | None:
    trouble = feed.state()["trouble"]
    return None if trouble is None else str(trouble["kind"])


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)), "rights"),
        (KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)), "topics"),
        (KafkaException(KafkaError(KafkaError._TRANSPORT, "secret-host:9092")), "away"),
        (RuntimeError("secret-host"), "defect"),
    ],
)
def test_what_was_read_stays_and_reading_goes_on(
    error: Exception, wanted: str, caplog: pytest.LogCaptureFixture
) -> None:
    board = Scripted(settings())
    answers: list[Any] = ["first"]

    def script() -> Any:
        if answers:
            return answers.pop(0)
        raise error

    board.script = script
    feed = running(board)
    try:
        wait_for(lambda: kind(feed) == wanted, f"the feed says {wanted}")
        state = feed.state()
        assert state["known"] == ["first"]
        assert "secret-host" not in str(state)
        assert state["trouble"]["since"] > 0
        answers += ["second", "third"]
        board.script = lambda: answers.pop(0) if answers else None
        wait_for(lambda: feed.state()["known"][1:] == ["second", "third"], "it reads on")
        wait_for(lambda: kind(feed) is None, "all is well again")
    finally:
        feed.close()


def test_it_notices_that_brokers_are_away_though_reading_says_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[Finding | int] = []
    monkeypatch.setattr(module, "reach_brokers", lambda *_: answers[-1] if answers else 1)
    feed = running(Scripted(settings()))
    try:
        wait_for(lambda: feed.state()["caught_up"], "it reads")
        with caplog.at_level(logging.WARNING):
            answers.append(
                Finding("brokers", "failure", 'kafka.bootstrap_servers="b-1:9093": nothing listens', "start it")
            )
            wait_for(lambda: kind(feed) == "away", "it notices")
            since = feed.state()["trouble"]["since"]
            answers.append(1)
            wait_for(lambda: kind(feed) is None, "it notices that they are back")
        assert since > 0
        assert "b-1:9093" in caplog.text
    finally:
        feed.close()


def test_topics_that_do_not_exist_yet_are_waited_for(embedded: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded broker makes topics when they are named, so the board is told that there are none."""
    of = settings(embedded.bootstrap_servers, pipeline={"name": "p", "prefix": embedded.new_prefix()})
    monkeypatch.setattr(Clients, "partitions", lambda *_: 0)
    from susurrus.agents.dashboard.serving import serving

    with serving(of, port=0) as served:
        wait_for(lambda: kind(served._feed) == "topics", "it says that there are no topics")
        monkeypatch.undo()
        monkeypatch.setattr(module, "_AGAIN_SECONDS", 0.05)
        create(embedded, of)
        wait_for(lambda: kind(served._feed) is None, "it reads once there are")


def test_without_the_right_to_read_charges_the_rest_is_shown(embedded: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    of = settings(
        embedded.bootstrap_servers,
        pipeline={"name": "p", "prefix": embedded.new_prefix()},
        columns=[{"name": "visits"}],
    )
    create(embedded, of)
    write(of, {"histogram": rows(1, {b'"/a"': 10}), "progress": [said(1, 1)], "charges": [charge(of, WINDOW)]})
    plain = Clients.partitions

    def refused(clients: Clients, topic: str) -> int:
        if topic.endswith(".charges"):
            raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
        return plain(clients, topic)

    with dashboard(of) as served:
        wait_for(lambda: served._feed.state()["budget"], "the charge is read")
    monkeypatch.setattr(Clients, "partitions", refused)
    with dashboard(of) as served:
        wait_for(lambda: served._feed.state()["windows"], "the release is read")
        assert served._feed.state()["budget"] is None
        assert served._feed.state()["trouble"] is None


def test_nothing_but_public_topics_and_charges_is_read(embedded: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    of = settings(embedded.bootstrap_servers, pipeline={"name": "p", "prefix": embedded.new_prefix()})
    create(embedded, of)
    read = set[str]()
    from susurrus.agents.kafka.follow import Follower

    plain = Follower.__init__

    def watched(self: Any, consumer: Any, starts: Any) -> None:
        read.update(topic for topic, _ in starts)
        plain(self, consumer, starts)

    monkeypatch.setattr(Follower, "__init__", watched)
    with dashboard(of):
        pass
    public = {of.topic(spec.name) for spec in of.topic_specs if spec.readers == "public"}
    assert read <= public | {f"{of.pipeline.prefix}.charges"}
    assert of.topic("histogram") in read
