"""A format that is registered in one line checks its settings, and is read by histograms and by streams."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from susurrus.agents.config.input import InputSettings
from susurrus.agents.formats import FORMATS, decoder_of
from susurrus.agents.histogram.route import RouteStage
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics import by_user
from susurrus.topics.dead_letter import decode_headers
from susurrus.topics.records.reason import Reason
from susurrus.topics.records.values import ValuesDecoder, ValuesSchema
from susurrus.topics.wire.packing import Kind, kind_of
from tests.agents.released import DAY, settings
from tests.agents.stages import WINDOW, MemoryClients, Runner, services_of
from tests.toys.format import MessagePack

SOURCE = {"topic": "raw", "user": "host", "key": ["url"], "format": MessagePack.name}
BAD = ((b"", Reason.EMPTY), (None, Reason.TOMBSTONE), (b"\xc1", Reason.UNDECODABLE), (b"\x90", Reason.WRONG_TYPE))


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORMATS, MessagePack.name, MessagePack)


def test_its_settings_are_checked() -> None:
    assert MessagePack.name in InputSettings.model_json_schema()["properties"]["format"]["enum"]
    with pytest.raises(ConfigurationError, match=r'message: has no meaning for input.format\s=\s"messagepack"'):
        settings(input=SOURCE | {"message": "module:Class"})
    with pytest.raises(ConfigurationError, match=r"use 'json', 'avro', .* or 'messagepack'"):
        settings(input=SOURCE | {"format": "message-pack"})


def test_a_histogram_reads_it(tmp_path: Path) -> None:
    replay = {"kind": "replay", "until": WINDOW + DAY}
    found = settings(input=SOURCE, start={"from": "earliest", "first_window": WINDOW}, clock=replay)
    good = [msgspec.msgpack.encode({"host": host, "url": "/"}) for host in "ab"]
    payloads = [good[0], *(payload for payload, _ in BAD), good[1]]
    services = replace(services_of(found, sources=1), clients=MemoryClients({0: len(payloads)}))  # type: ignore[arg-type]
    runner = Runner(RouteStage, services, tmp_path)
    runner.feed([_Record(offset, payload) for offset, payload in enumerate(payloads)], len(payloads))
    runner.commit()
    runner.close()
    blocks = [by_user.decode(value) for *_, value, _ in runner.to("by-user") if kind_of(value) is not Kind.TICK]
    assert sorted(user for block in blocks for user in block.users) == [b'"a"', b'"b"']
    letters = [headers for commit in runner.commits for output in commit.outputs for headers in output.headers or ()]
    assert [decode_headers(letter).reason for letter in letters] == [reason for _, reason in BAD]


def test_a_stream_reads_it() -> None:
    found = settings(
        pipeline={"name": "meters", "kind": "stream"},
        input={"topic": "raw", "format": MessagePack.name},
        stream={"bound": 10.0, "grid": 0.5, "epsilon": 1.0, "holdout": 4096},
        privacy=None,
    )
    decoder = ValuesDecoder(ValuesSchema(value="v.w", bound=10.0, grid=0.5))
    payloads = [msgspec.msgpack.encode({"v": {"w": 3.5}}), *(payload for payload, _ in BAD)]
    form = decoder_of(found.input, decoder.paths)
    columns = decoder.decode(form.read(payloads, lambda row: True), [b"meter"] * len(payloads))
    assert columns.reason.tolist() == [Reason.OK, *(reason for _, reason in BAD)]
    assert (columns.streams, columns.value.tolist()) == ([b'"meter"'], [7, 0, 0, 0, 0])


class _Record:
    """What a fetch brings."""

    timestamp, timestamp_type, key = WINDOW, 0, None

    def __init__(self, offset: int, value: bytes | None) -> None:
        self.offset, self.value = offset, value
