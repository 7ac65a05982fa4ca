"""Which Kafka runs, and where its JARs are."""

import json
import re
from importlib import resources
from pathlib import Path

import pytest

from susurrus.agents.broker.artefacts import KafkaUnavailableError, fetch_jars, jars_directory, kafka_version
from susurrus.agents.broker.cluster import KafkaCluster
from tests.broker import give_up, started

POM = (resources.files("susurrus.agents.broker") / "pom.xml").read_text()


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUSURRUS_KAFKA_VERSION", raising=False)


def test_the_version_is_the_poms_unless_the_environment_names_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert f"<kafka.version>{kafka_version()}</kafka.version>" in POM
    default = jars_directory()
    monkeypatch.setenv("SUSURRUS_KAFKA_VERSION", "3.6.2")
    assert kafka_version() == "3.6.2"
    assert jars_directory() == jars_directory("3.6.2") != default


def test_every_version_has_its_own_folder() -> None:
    """So that two versions run beside each other, and another one's JARs are never taken for it."""
    versions = [None, "3.6.2", "4.4.0"]
    assert len({jars_directory(each) for each in versions}) == len(versions)
    assert jars_directory(kafka_version()) == jars_directory()


@pytest.mark.parametrize("version", ["newest", "4", "4.2.2</kafka.version>", "../4.2.2", "4.2.2 "])
def test_what_is_no_version_is_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUSURRUS_KAFKA_VERSION", version)
    with pytest.raises(KafkaUnavailableError, match=re.escape(f"SUSURRUS_KAFKA_VERSION={version!r}: give one of")):
        fetch_jars()


def test_a_kept_cluster_remembers_the_version_that_was_named(tmp_path: Path) -> None:
    node = {"id": 1, "port": 9092, "controller_port": 9093}
    for version in (None, "3.6.2"):
        state = {"nodes": [node], "properties": {}, "heap": "512m", "short_lived": True, "version": version}
        (tmp_path / "cluster.json").write_text(json.dumps(state))
        assert KafkaCluster.open(tmp_path).version == version
    del state["version"]  # as a cluster that an earlier version of Susurrus has made
    (tmp_path / "cluster.json").write_text(json.dumps(state))
    assert KafkaCluster.open(tmp_path).version is None


@pytest.mark.thorough
@pytest.mark.broker
@pytest.mark.timeout(400)  # the first run fetches the JARs
def test_a_broker_of_another_version_runs_is_kept_and_logs(tmp_path: Path) -> None:
    cluster = KafkaCluster(directory=tmp_path / "cluster", short_lived=True, version="3.6.2")
    try:
        fetch_jars("3.6.2")
    except KafkaUnavailableError as error:
        give_up(str(error))
    with started(cluster):
        assert any(name.startswith(f"kafka_2.13-{cluster.version}") for name in java_class_path(cluster))
        assert KafkaCluster.open(cluster.directory).running() == [1]
        cluster.restart(1)
        assert any(name.startswith(f"kafka_2.13-{cluster.version}") for name in java_class_path(cluster))
    # Its own format of lines, as in every version; else last_words would have nothing to show.
    assert re.search(r"^\d{4}-\d\d-\d\dT[\d:.]+Z \[", cluster.log(1).read_text(), re.MULTILINE)


def java_class_path(cluster: KafkaCluster) -> list[str]:
    """The JARs of the folder that the running broker was started with."""
    pid = int((cluster.directory / "broker-1" / "pid").read_text())
    arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    return [each.name for each in Path(arguments[arguments.index("-cp") + 1]).parent.iterdir()]
