"""The rights that `susurrus acls` gives are enough for each role, on a broker that refuses everything else."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from typer.testing import CliRunner

from susurrus.agents.cli.main import app
from susurrus.agents.histogram.releases import ReleaseReader
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.kafka.access import Right, grant, rights_of
from susurrus.agents.pipelines import settings_from
from susurrus.releases import releases
from tests.agents.dashboard.published import dashboard
from tests.broker import create_topic, wait_for
from tests.guarded import Guarded
from tests.pipeline import Worker, merged, until_final

NAMES = ("worker", "operator", "writer", "reader", "dashboard")
CONFIGURATION: dict[str, Any] = {
    "pipeline": {"name": "web", "prefix": "acl"},
    "input": {"topic": "acl-raw", "user": "u", "key": ["k"]},
    "start": {"from": "earliest", "first_window": "1970-01-01T00:00:00Z"},
    "clock": {"kind": "replay", "until": "1970-01-02T00:00:00Z"},
    "window": {"trigger_every": "12h"},
    "bounds": {"max_records_per_user": 1},
    "privacy": {"epsilon": 6.0, "delta": 1e-9},
    "topics": {
        "charges": "acl.charges", "by_user_partitions": 2, "bounded_partitions": 2, "replication_factor": 1,
        "min_insync_replicas": 1,
    },
}  # fmt: skip


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


class Cast:
    """One user for each role, without rights at first, and a configuration file for each; "admin" may do everything."""

    def __init__(self, guarded: Guarded, directory: Path) -> None:
        self.guarded, self.directory = guarded, directory
        self.properties = {name: guarded.new_user(f"acl-{name}") for name in NAMES}
        for name in (*NAMES, "admin"):
            kafka = {"bootstrap_servers": guarded.password, "properties": self.properties.get(name, {})}
            if name == "admin":
                kafka = {"bootstrap_servers": guarded.open}
            own = {"kafka": kafka, "worker": {"data_directory": str(directory / "state")}}
            self.file(name).write_text(tomli_w.dumps(merged(CONFIGURATION, own)))

    def file(self, name: str) -> Path:
        return self.directory / f"{name}.toml"

    def grant(self, *more: str) -> str:
        users = [part for name in NAMES for part in (f"--{name}", f"acl-{name}")]
        return run("acls", "--config", str(self.file("admin")), *users, "--apply", *more)

    def take_all(self) -> None:
        admin = self.guarded.admin()
        for name in NAMES:
            everything = AclBindingFilter(
                ResourceType.ANY, None, ResourcePatternType.ANY, f"User:acl-{name}", None, AclOperation.ANY,
                AclPermissionType.ANY,
            )  # fmt: skip
            for future in admin.delete_acls([everything]).values():
                future.result(20)

    def send(self, records: int) -> int:
        """Records from the user that produces; how many the broker refused."""
        refused: list[Any] = []
        producer = Producer({"bootstrap.servers": self.guarded.password, **self.properties["writer"]})
        for user in range(records):
            value = f'{{"u":{user},"k":"a"}}'.encode()
            producer.produce(
                "acl-raw", value, partition=user % 2, timestamp=1_000 + user,
                on_delivery=lambda error, _: refused.append(error) if error else None,
            )  # fmt: skip
        assert producer.flush(20) == 0
        return len(refused)


@pytest.fixture
def cast(guarded: Guarded, tmp_path: Path) -> Iterator[Cast]:
    found = Cast(guarded, tmp_path)
    yield found
    found.take_all()


def test_each_user_can_do_its_part_with_the_rights_that_are_granted_and_nothing_without(cast: Cast) -> None:
    forever = {"retention.ms": "-1"}  # the stamps are of 1970
    admin = cast.guarded.admin()
    create_topic(admin, "acl-raw", 2, forever)
    wait_for(lambda: cast.send(1) == 1, "a producer without rights is refused")
    said = cast.grant("--reader-group", "acl-dashboard")
    assert said.count("granted") == len(said.splitlines()) == 1 + 7 + 6 + 5 + 5
    wait_for(lambda: cast.grant("--reader-group", "acl-dashboard").count("exists") == 24, "the broker has the rules")
    wait_for(lambda: cast.send(1) == 0, "the producer may write")
    assert cast.send(400) == 0
    wait_for(
        lambda: CliRunner().invoke(app, ["topics", "create", "--config", str(cast.file("operator"))]).exit_code == 0,
        "the operator may create topics",
    )
    assert "wrong" not in run("topics", "check", "--config", str(cast.file("operator")))
    worker = Worker(cast.file("worker"), cast.directory, {})
    try:
        settings = settings_from(
            merged(
                CONFIGURATION,
                {"kafka": {"bootstrap_servers": cast.guarded.password, "properties": cast.properties["reader"]}},
            ),
            environ={},
        )
        with ReleaseReader(HistogramSettings.of(settings)) as reader:
            found = until_final(reader, worker)
        assert found[-1].keys == ["a"]
        assert [release.keys for release in releases(settings, window="1970-01-01", final=True)] == [["a"]]
        shown = settings_from(
            merged(
                CONFIGURATION,
                {"kafka": {"bootstrap_servers": cast.guarded.password, "properties": cast.properties["dashboard"]}},
            ),
            environ={},
        )
        with dashboard(shown) as served:
            state = served._feed.state()
            assert (state["trouble"], state["windows"][0]["final"], state["windows"][0]["keys"]) == (None, True, 1)
            assert state["budget"]["pipelines"] == [{"name": "web", "windows": 1, "charges": 1}]
        # With an empty disk, a worker reads the changelogs.
        assert worker.stop() == 0
        shutil.rmtree(cast.directory / "state")
        worker = Worker(cast.file("worker"), cast.directory, {})
        status = ["status", "--config", str(cast.file("operator"))]
        wait_for(lambda: CliRunner().invoke(app, status).exit_code == 0, "all is recovered")
        assert "right" not in run(*status)
        assert "Charged as web/tune" in run("tune", "--config", str(cast.file("operator")), "--yes", "--epsilon", "2")
    finally:
        assert worker.stop() == 0
    assert "lacks" not in worker.log.read_text()
    assert "AUTHORIZATION" not in worker.log.read_text().upper()


def test_on_a_cluster_of_raw_topics_a_worker_needs_no_right_but_to_read_them(guarded: Guarded, tmp_path: Path) -> None:
    """Two users of one cluster stand for two clusters: one has the rights on raw topics, and the other has all others."""
    forever = {"retention.ms": "-1"}
    admin = guarded.admin()
    create_topic(admin, "acl-far", 2, forever)
    producer = Producer({"bootstrap.servers": guarded.open})
    for user in range(400):
        producer.produce("acl-far", f'{{"u":{user},"k":"a"}}'.encode(), partition=user % 2, timestamp=1_000 + user)
    assert producer.flush(20) == 0
    near = {"bootstrap_servers": guarded.password, "properties": guarded.new_user("acl-near")}
    far = {"bootstrap_servers": guarded.password, "properties": guarded.new_user("acl-far")}
    own = {
        "pipeline": {"prefix": "acl-far"},
        "topics": {"charges": "acl-far.charges"},
        "kafka": near,
        "input": {"topic": "acl-far", "kafka": far},
        "worker": {"data_directory": str(tmp_path / "state")},
    }
    file, all_mighty = tmp_path / "worker.toml", tmp_path / "admin.toml"
    file.write_text(tomli_w.dumps(merged(CONFIGURATION, own)))
    settings = settings_from(merged(CONFIGURATION, own), environ={})
    printed = run("acls", "--config", str(file)).splitlines()
    assert [line for line in printed if line.startswith("#")] == ["# worker User:acl-near", "# worker User:acl-far"]
    there = printed[printed.index("# worker User:acl-far") + 1 :]
    assert [line.partition("--allow-principal ")[2] for line in there] == [
        "User:acl-far --operation Read --operation Describe --operation DescribeConfigs --topic acl-far",
        "User:acl-far --operation Describe --resource-pattern-type prefixed --group acl-far.web-",
    ]
    properties = {
        "security.protocol": "PLAINTEXT",
        "sasl.username": None,
        "sasl.password": None,
        "sasl.mechanism": None,
    }
    data = merged(
        merged(CONFIGURATION, own),
        {
            "kafka": {"bootstrap_servers": guarded.open, "properties": properties},
            "input": {"kafka": {"bootstrap_servers": guarded.open, "properties": properties}},
        },
    )
    all_mighty.write_text(tomli_w.dumps(data))
    run("topics", "create", "--config", str(all_mighty))
    for principal, elsewhere in (("User:acl-near", False), ("User:acl-far", True)):
        grant(admin, principal, [one for one in rights_of(settings, "worker") if one.elsewhere is elsewhere])
    worker = Worker(file, tmp_path, {})
    try:
        shown = merged(data, {"input": {"kafka": None}})
        with ReleaseReader(HistogramSettings.of(settings_from(shown, environ={}))) as reader:
            found = until_final(reader, worker)
        assert found[-1].keys == ["a"]
    finally:
        assert worker.stop() == 0
    assert "AUTHORIZATION" not in worker.log.read_text().upper()


def test_a_user_who_may_not_grant_is_told_what_to_do(cast: Cast) -> None:
    result = CliRunner().invoke(app, ["acls", "--config", str(cast.file("worker")), "--worker", "x", "--apply"])
    assert result.exit_code == 2
    assert "acl-worker lacks Alter on the cluster" in " ".join(result.stderr.split())


def test_the_commands_are_the_rights(cast: Cast) -> None:
    printed = run("acls", "--config", str(cast.file("worker")), "--reader", "User:CN=my app")
    assert printed.splitlines()[0] == "# reader User:CN=my app"
    assert printed.splitlines()[1] == (
        f"kafka-acls.sh --bootstrap-server {cast.guarded.password} --add --allow-principal 'User:CN=my app' --operation Read "
        "--operation Describe --topic acl.web.histogram"
    )


def test_readers_are_given_public_topics_only_and_prefixes_end_where_the_pipelines_names_end() -> None:
    settings = settings_from(CONFIGURATION, environ={})
    public = [right.name for right in rights_of(settings, "reader") if right.resource == "topic"]
    assert public == ["acl.web.histogram", "acl.web.latest", "acl.web.progress"]
    shown = [right.name for right in rights_of(settings, "dashboard") if right.resource == "topic"]
    assert shown == [*public, "acl.charges"]
    other = settings_from(merged(CONFIGURATION, {"pipeline": {"name": "web-2"}}), environ={})
    assert not [right for right in rights_of(settings, "operator") if right.covers("topic", other.topic("bounded"))]


def test_a_right_covers_what_it_names() -> None:
    literal = Right("topic", "a", (AclOperation.READ,))
    assert (literal.covers("topic", "a"), literal.covers("topic", "ab"), literal.covers("group", "a")) == (1, 0, 0)
    assert Right("topic", "a", (AclOperation.READ,), prefixed=True).covers("topic", "ab")
