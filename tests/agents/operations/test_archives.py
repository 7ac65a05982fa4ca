"""Archives of which nothing is left, on a real broker: refused before anything is charged. And those that nobody has written."""

import json
from pathlib import Path

from confluent_kafka import TopicPartition
from typer.testing import CliRunner

from susurrus.agents.cli.main import app
from susurrus.agents.finding import Finding
from susurrus.agents.operations.explanation import explain, facts_of
from susurrus.agents.operations.preflight.run import preflight
from susurrus.agents.operations.status import collect
from susurrus.agents.pipelines import pipeline_of
from susurrus.agents.runtime.ending import MISCONFIGURED
from tests.broker import Broker, wait_for
from tests.pipeline import SECRET, Pipeline, archive_topic, produce
from tests.waiting import PATIENCE

WINDOW = 807_235_200_000  # 1995-08-01T00:00:00Z
RECORDS = 6
CAUSES = ("deleted", "no-records")
DELETED = f"there were some, up to offset={RECORDS // 2}, and they are deleted"


def delete_records(broker: Broker, topic: str) -> None:
    """As retention does: the log's start moves to its end."""
    everything = [TopicPartition(topic, partition, -1) for partition in range(2)]
    for future in broker.admin().delete_records(everything).values():
        future.result(20)


def words(output: str) -> str:
    """What stands in a frame, on one line."""
    return " ".join(output.replace("│", " ").split())


def write(broker: Broker, topic: str) -> None:
    visit = json.dumps({"host": "someone", "url": "/page"}).encode()
    produce(broker, topic, [(number % 2, visit, WINDOW + number) for number in range(RECORDS)])


def test_an_archive_of_which_nothing_is_left_is_refused_by_worker_preflight_and_new_epoch(
    kafka: Broker, tmp_path: Path
) -> None:
    topic = archive_topic(kafka, 2)
    write(kafka, topic)
    delete_records(kafka, topic)
    with Pipeline(kafka, tmp_path, topic) as pipeline:
        made = pipeline_of(pipeline.settings)

        worker = pipeline.start()
        assert worker.process.wait(PATIENCE) == MISCONFIGURED, worker.tail()
        assert DELETED in words(worker.log.read_text())

        [finding] = [one for one in preflight(made) if one.subject == "epoch"]
        assert (finding.level, DELETED in finding.text) == ("failure", True)

        asked = CliRunner().invoke(
            app, ["ledger", "new-epoch", "-c", str(pipeline.config), "--yes"], env={"SUSURRUS_SECRET": SECRET}
        )
        assert asked.exit_code != 0
        assert DELETED in words(asked.output)

        found = collect(made)
        assert [one.subject for one in explain(made, facts_of(made, found, now=WINDOW))] == ["deleted"]
        assert (found.epoch, found.charged) == ("", 0)
        for name in (pipeline.settings.topic("ledger"), pipeline.settings.topics.charges):
            assert not kafka.read_all(name)


def test_an_archive_that_nobody_has_written_is_published_as_empty_and_said(kafka: Broker, tmp_path: Path) -> None:
    """All of an archive may be of one user, so whether its triggers are published must not depend on the records."""
    with Pipeline(kafka, tmp_path, archive_topic(kafka, 2)) as pipeline:
        made = pipeline_of(pipeline.settings)
        assert [one.subject for one in explain(made, facts_of(made, collect(made), now=WINDOW))] == ["no-records"]
        worker = pipeline.start()
        pipeline.wait()
        assert "nothing was ever written to it" in worker.log.read_text()
        causes: list[Finding] = []

        def explained() -> bool:
            causes[:] = explain(made, facts_of(made, collect(made), now=WINDOW))
            return bool(causes)

        wait_for(explained, "each partition has written that it has read nothing")
        [told] = causes
        assert (told.subject, "with a new pipeline name, because the archive's end is fixed" in told.action) == (
            "no-records",
            True,
        )


def test_a_live_topic_may_be_empty_and_status_says_whether_it_always_was(kafka: Broker, tmp_path: Path) -> None:
    """By the log's start: `deleted` where a pipeline began at the earliest record and the broker had none left."""
    live = {
        "clock": {"kind": "producer", "until": None, "idle_grace": "2s"},
        "start": {"first_window": "1995-08-01T00:00:00Z"},
        "privacy": {"strategy": "toeplitz"},
    }
    causes = {}
    for number, cause in enumerate(CAUSES):
        topic = kafka.create_topic(f"raw-{kafka.new_prefix()}", 2, {"message.timestamp.type": "CreateTime"})
        if cause == "deleted":
            visit = json.dumps({"host": "someone", "url": "/page"}).encode()
            produce(kafka, topic, [(partition, visit, None) for partition in range(2)])
            delete_records(kafka, topic)
        (tmp_path / str(number)).mkdir()
        with Pipeline(kafka, tmp_path / str(number), topic, live) as pipeline:
            made = pipeline_of(pipeline.settings)
            pipeline.start()

            def told(made=made) -> set[str]:  # type: ignore[no-untyped-def]
                return {one.subject for one in explain(made, facts_of(made, collect(made), now=WINDOW))} & set(CAUSES)

            wait_for(told, "status says why nothing comes")
            causes[cause] = told()
    assert causes == {"deleted": {"deleted"}, "no-records": {"no-records"}}
