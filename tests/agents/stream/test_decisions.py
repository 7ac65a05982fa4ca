"""What would become of the records of streams: as the stage decides it, each alone, with the setting to blame."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from susurrus.agents.kafka.messages import ReadRecord
from susurrus.agents.operations.advice import named_fields
from susurrus.agents.operations.look import seen_in
from susurrus.agents.operations.trying import Trial, try_records
from susurrus.agents.pipelines import pipeline_of, settings_from
from susurrus.agents.runtime.decisions import Decisions
from susurrus.agents.stream.decisions import StreamDecisions
from susurrus.agents.stream.settings import StreamSettings
from susurrus.topics.dead_letter import decode_headers
from susurrus.topics.records.reason import Reason
from tests.agents.operations.raw_records import NOW, fates, record
from tests.agents.stages import WINDOW
from tests.agents.stream.test_formats import of_stream, records, runner_of


def settings(source: dict[str, Any] | None = None, **stream: Any) -> StreamSettings:
    own = {"value": "watts", "stream": "meter", "bound": 100.0, "epsilon": 1.0, **stream}
    return StreamSettings.of(
        settings_from(
            {
                "pipeline": {"name": "p", "kind": "stream"},
                "input": {"topic": "raw", **(source or {})},
                "stream": {name: value for name, value in own.items() if value is not None},
            },
            environ={},
        )
    )


def tried(ours: StreamSettings, some: list[ReadRecord]) -> Trial:
    return try_records(StreamDecisions(ours), ours.input, some, np.zeros(len(some), np.int64), now=NOW)


GOOD = {"meter": "m", "watts": 3.5}


@pytest.mark.parametrize(
    ("value", "reason", "setting"),
    [
        (None, "TOMBSTONE", ""),
        (b"{", "NOT_JSON", ""),
        ({"watts": 1}, "MISSING_KEY", 'stream.stream = "meter"'),
        ({"meter": ["m"], "watts": 1}, "NOT_A_SCALAR", 'stream.stream = "meter"'),
        ({"meter": "m"}, "MISSING_VALUE", 'stream.value = "watts"'),
        ({"meter": "m", "watts": "3"}, "VALUE_NOT_A_NUMBER", 'stream.value = "watts"'),
        (b'{"meter": "m", "watts": 1e999}', "NOT_FINITE", 'stream.value = "watts"'),
    ],
)
def test_a_dead_letter_names_its_reason_and_the_setting(value: Any, reason: str, setting: str) -> None:
    some = [record(value, offset=0), record(GOOD, offset=1)]
    assert fates(tried(settings(), some)) == [("kept", "OK", "", 1), ("dead letter", reason, setting, 1)]


def test_the_key_of_a_record_names_its_stream() -> None:
    ours = settings(stream=None)
    some = [record({"watts": 1}, key=key, offset=n) for n, key in enumerate((b"m", None, b"\xff"))]
    blamed = "stream.stream, which is the record's key"
    assert fates(tried(ours, some)) == [("kept", "OK", "", 2), ("dead letter", "INVALID_UTF8", blamed, 1)]
    [key, value] = named_fields(StreamDecisions(ours), ours.input, some, seen_in(some, None, ours.input))
    assert (key.name, key.present, key.null) == ("$key", 1, 1)
    assert (value.name, value.present) == ("watts", 3)


def test_a_name_that_no_record_has_comes_with_the_nearest() -> None:
    ours, some = settings(value="Watts"), [record(GOOD)]
    [_, value] = named_fields(StreamDecisions(ours), ours.input, some, seen_in(some, None, ours.input))
    assert (value.unknown, value.nearest) == (True, "watts")


def odd(chance: random.Random) -> Any:
    if chance.random() < 0.3:
        return chance.randbytes(chance.randrange(30))
    return {
        chance.choice(["meter", "watts", "", "x"]): chance.choice(
            [None, "", "m", 1, -1.5, True, [], {}, 10**30, 2**60, "\x00"]
        )
        for _ in range(chance.randrange(5))
    }


@pytest.mark.parametrize("source", [{}, {"envelope": "debezium"}, {"format": "msgpack"}, {"compression": "auto"}])
def test_odd_records_are_decided_as_the_stage_decides_them(source: dict[str, Any], tmp_path: Path) -> None:
    chance, payloads = random.Random(33), list[bytes | None]()
    for _ in range(400):
        value = odd(chance) if chance.random() < 0.8 else GOOD
        wrapped = {"before": None, "after": value, "op": "c"} if chance.random() < 0.5 else value
        payloads.append(value if isinstance(value, bytes) else json.dumps(wrapped).encode())
    payloads[7] = None
    ours = of_stream(source)
    decisions = pipeline_of(ours).decisions(None)  # type: ignore[arg-type]
    assert isinstance(decisions, Decisions)
    some = [ReadRecord("raw", 0, n, WINDOW + n, None, value, []) for n, value in enumerate(payloads)]
    found = decisions.decide(ours.input, some, np.zeros(len(some), np.int64), now=NOW, begun=None)
    runner = runner_of(ours, tmp_path, len(payloads))
    runner.feed(records(payloads), len(payloads))  # type: ignore[arg-type]
    runner.commit(now=WINDOW)
    letters = [
        decode_headers(h) for commit in runner.commits for output in commit.outputs for h in output.headers or ()
    ]
    wanted = {letter.offset: letter.reason for letter in letters}
    runner.close()
    assert len(wanted) > 100
    left_out = (Reason.OK, Reason.FILTERED)
    assert {n: Reason(why) for n, why in enumerate(found.reason.tolist()) if why not in left_out} == wanted


def test_what_an_envelope_leaves_out_is_no_dead_letter(tmp_path: Path) -> None:
    change = json.dumps({"before": None, "after": GOOD, "op": "c"}).encode()
    runner = runner_of(of_stream({"envelope": "debezium"}), tmp_path, 3)
    runner.feed(records([change, None, change]), 3)  # type: ignore[list-item]
    runner.commit(now=WINDOW)
    counters = runner.stage.counters
    assert (counters["in"], counters["filtered"], counters["dead_letter"]) == (3, 1, 0)
    assert not [output for commit in runner.commits for output in commit.outputs if output.headers]
    runner.close()
