"""Every command on a pipeline that reads two raw topics, before it begins and beside its worker: none forgets one of them."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from susurrus.agents.broker.network import free_ports
from susurrus.agents.cli.main import app
from susurrus.topics import charges
from tests.agents.operations.test_web import get, parsed
from tests.broker import Broker
from tests.pipeline import SECRET, Pipeline, produce

NOW = int(time.time() * 1000)


def run(pipeline: Pipeline, *arguments: str) -> str:
    runner = CliRunner(env={"COLUMNS": "200", "TERM": "dumb", "SUSURRUS_SECRET": SECRET})
    found = runner.invoke(app, [*arguments, "--config", str(pipeline.config)])
    assert found.exit_code in (0, 1), found.output
    return found.output


def event(user: int, **more: Any) -> bytes:
    return json.dumps({"host": f"u{user}", "url": f"/{user % 3}", "bytes": user, **more}).encode()


@pytest.fixture
def topics(kafka: Broker) -> tuple[str, str]:
    """The second is in other lines than the first, and has bad records in partition 0."""
    base = f"raw-{kafka.new_prefix()}"
    first, second = (kafka.create_topic(f"{base}-{name}", 2) for name in "ab")
    produce(kafka, first, [(user % 2, event(user), NOW) for user in range(40)])
    produce(kafka, second, [(user % 2, event(user), NOW) for user in range(40, 60)])
    produce(kafka, second, [(0, event(user, host=None), NOW) for user in range(5)])
    return first, second


def two(kafka: Broker, directory: Path, port: int, **source: Any) -> Pipeline:
    return Pipeline(
        kafka,
        directory,
        "unused",
        {
            "input": {"topic": None, **source},
            "start": {"from": "earliest", "first_window": day(NOW)},
            "clock": {"kind": "producer", "until": None, "idle_grace": "1s"},
            "window": {"length": "1d", "trigger_every": "1d", "allowed_lateness": "0s"},
            "columns": [
                {"name": "visits", "kind": "count"},
                {"name": "b", "kind": "sum", "field": "bytes", "lower": 0, "upper": 9},
            ],
            "privacy": {"strategy": None},
            "budget": {"epsilon": 1000.0, "delta": 1e-6},
            "topics": {"by_user_partitions": 2, "bounded_partitions": 1},
            "worker": {"web_port": port},
        },
    )


def day(moment: int) -> str:
    return time.strftime("%Y-%m-%dT00:00:00Z", time.gmtime(moment / 1000))


@pytest.mark.parametrize("by", ["list", pytest.param("pattern", marks=pytest.mark.thorough)])
def test_commands_before_and_beside_a_worker(kafka: Broker, tmp_path: Path, topics: tuple[str, str], by: str) -> None:
    [port] = free_ports(1)
    first, second = topics
    pattern = f"{first.removesuffix('-a')}-[ab]"
    source: dict[str, Any] = {"topics": list(topics)} if by == "list" else {"topic_pattern": pattern}
    with two(kafka, tmp_path, port, **source) as pipeline:
        checked = " ".join(run(pipeline, "preflight").split())
        for topic in topics:
            assert f"{topic} (raw, CreateTime)" in checked
            assert f"{topic} keeps records for" in checked
            assert f"no open transaction on {topic}" in checked
        assert f"{first}: of the newest 40 records 40 would be kept" in checked
        assert f"{second}: 5 of the newest 25 records would be dead letters, MISSING_USER" in checked
        assert "not begun yet" in checked

        tried = json.loads(run(pipeline, "try", "--json"))["topics"]
        assert [(one["topic"], one["rows"]) for one in tried] == [(first, 40), (second, 25)]

        explained = " ".join(run(pipeline, "explain").split())
        assert all(name in explained for name in (topics if by == "list" else (pattern,)))
        planned = json.loads(run(pipeline, "plan", "--raw-records", "65", "--seeds", "1", "--json"))
        assert planned["input"]["records_read"] == 65
        assert planned["input"]["records_dropped"] == {"MISSING_USER": 5}
        tuned = run(pipeline, "tune", "--window", day(NOW), "--yes", "--epsilon", "1")
        assert "max_records_per_user" in tuned

        pipeline.start()
        pipeline.wait_for_total(65, "in")
        status = json.loads(run(pipeline, "status", "--json"))
        places = {
            (one["topic"], one["topic_partition"]): one["partition"]
            for one in status["partitions"]
            if one["stage"] == "route"
        }
        assert places == {(first, 0): 0, (first, 1): 1, (second, 0): 2, (second, 1): 3}
        assert all(one["topic"] and one["topic_partition"] == one["partition"]
                   for one in status["partitions"] if one["stage"] != "route")  # fmt: skip
        table = run(pipeline, "status", "--all")
        assert f"{second} 1" in table
        letters = json.loads(run(pipeline, "dead-letters", "--json"))["reasons"]
        assert [(one["reason"], one["partitions"]) for one in letters] == [
            ("MISSING_USER", [{"topic": second, "partition": 0, "number": 5}])
        ]
        assert "MISSING_USER" in run(pipeline, "dead-letters")

        assert f"route-3 ({second} 1): running" in get(port, "/")[1]
        labels = {"stage": "route", "partition": "3", "topic": second, "topic_partition": "1"}
        reads = [dict(at) for (name, at), _ in parsed(get(port, "/metrics")[1]).items() if name.endswith("_input_info")]
        assert [at for at in reads if labels.items() <= at.items()]
        assert len(reads) == len(status["partitions"])

        spent = " ".join(run(pipeline, "ledger", "show").split())
        assert first in spent
        assert second in spent
        log = kafka.read_all(pipeline.settings.topics.charges)
        made = [charges.decode(message.value()) for message in log]
        assert {charge.raw_topic for charge in made if not charges.pays_for_window(charge)} == set(topics)  # tune's

        begun = json.loads(run(pipeline, "try", "--json"))["topics"]
        assert not any("has not begun" in text for one in begun for text in one["undecided"])
        assert "epoch 1 runs with it" in " ".join(run(pipeline, "preflight").split())
