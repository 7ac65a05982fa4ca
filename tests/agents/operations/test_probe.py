"""What a worker says when Kafka is not as it needs it: each sentence on a real broker, and which of them end the worker."""

import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from susurrus.agents.broker.leash import ends_with_us
from susurrus.agents.broker.network import free_ports
from susurrus.agents.cli.status import _found as what_runs
from susurrus.agents.config.settings import Settings
from susurrus.agents.finding import Finding, sentences
from susurrus.agents.kafka.topics import create_topics
from susurrus.agents.operations import probe
from susurrus.agents.pipelines import pipeline_of, settings_from
from susurrus.mechanisms.errors import ConfigurationError
from tests.agents.operations.test_web import get
from tests.broker import create_topic, wait_for
from tests.guarded import PASSWORD, PRINCIPAL, SASL, Guarded


def settings_for(servers: str, properties: Mapping[str, Any], **sections: Any) -> Settings:
    return settings_from(
        {
            "pipeline": {"name": "p", "prefix": "s"},
            "kafka": {"bootstrap_servers": servers, "properties": properties},
            "input": {"topic": "raw", "user": "u", "key": ["k"]},
            "privacy": {"epsilon": 1.0, "delta": 1e-9, "strategy": "toeplitz"},
            "topics": {
                "charges": "s.charges",
                "by_user_partitions": 2, "bounded_partitions": 2, "replication_factor": 1, "min_insync_replicas": 1
            },
            **sections,
        },
        environ={},
    )  # fmt: skip


def seen(settings: Settings) -> tuple[str, bool]:
    found = probe.look(pipeline_of(settings))
    assert not isinstance(found, probe.Ready)
    text = sentences(found)
    assert PASSWORD not in text
    return text, found[0].waits


def said_now(settings: Settings) -> str:
    found = probe.look(pipeline_of(settings))
    return "" if isinstance(found, probe.Ready) else sentences(found)


def test_names_and_ports_that_lead_nowhere_are_waited_for() -> None:
    (port,) = free_ports(1)
    assert seen(settings_for(f"127.0.0.1:{port}", {})) == (
        f'kafka.bootstrap_servers="127.0.0.1:{port}": nothing listens at 127.0.0.1:{port} (Connection refused); start the '
        "brokers, or correct it",
        True,
    )
    text, waits = seen(settings_for("no-such-host.invalid:9092", {}))
    assert "the name in no-such-host.invalid:9092 cannot be resolved (" in text
    assert waits


def test_one_that_takes_connections_and_says_nothing_is_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        server = f"127.0.0.1:{mute.getsockname()[1]}"
        text, waits = seen(settings_for(server, {}))
    assert f'kafka.bootstrap_servers="{server}": ' in text
    assert "no broker answers within 3 s" in text
    assert waits


@pytest.mark.broker
def test_a_wrong_password_ends_the_worker(guarded: Guarded) -> None:
    assert seen(settings_for(guarded.password, {**SASL, "sasl.password": "guess"})) == (
        f'kafka.properties."sasl.username" and "sasl.password": {guarded.password} refuses them (Invalid username or password); '
        "correct them, or create the user on the brokers",
        False,
    )


@pytest.mark.broker
def test_a_mechanism_that_brokers_do_not_have_ends_the_worker(guarded: Guarded) -> None:
    text, waits = seen(settings_for(guarded.password, {**SASL, "sasl.mechanism": "SCRAM-SHA-512"}))
    assert text.startswith('kafka.properties."sasl.mechanism" = "SCRAM-SHA-512": ')
    assert "does not offer it, but PLAIN" in text
    assert not waits


@pytest.mark.broker
def test_a_certificate_of_an_unknown_authority_ends_the_worker(guarded: Guarded) -> None:
    text, waits = seen(
        settings_for(guarded.secure, {**SASL, "security.protocol": "SASL_SSL", "ssl.ca.location": "probe"})
    )
    assert text.startswith(
        f'kafka.properties."ssl.ca.location": does not vouch for the certificate of {guarded.secure}'
    )
    assert not waits


@pytest.mark.broker
@pytest.mark.parametrize(
    ("listener", "protocol", "sentence"),
    [
        ("open", "SSL", "does not speak TLS"),
        ("password", "SASL_SSL", "does not speak TLS"),
        ("secure", "PLAINTEXT", "speaks TLS"),
        ("secure", "SASL_PLAINTEXT", "speaks TLS"),
        ("password", "PLAINTEXT", "wants a user and a password; use SASL_PLAINTEXT"),
        ("open", "SASL_PLAINTEXT", "takes no user and no password"),
    ],
)
def test_the_protocol_of_another_listener_is_reported(
    guarded: Guarded, listener: str, protocol: str, sentence: str
) -> None:
    properties = {**(SASL if protocol.startswith("SASL") else {}), "security.protocol": protocol}
    server = getattr(guarded, listener)
    text, _ = seen(settings_for(server, properties))
    assert text.startswith(f'kafka.properties."security.protocol" = "{protocol}": {server} {sentence}')


def test_a_property_that_librdkafka_does_not_know_is_a_mistake_in_the_configuration() -> None:
    with pytest.raises(
        ConfigurationError, match=r'kafka.properties."fetch.mim.bytes": librdkafka has no such property'
    ):
        settings_for("localhost:9092", {"fetch.mim.bytes": 1})
    with pytest.raises(ConfigurationError, match=r'kafka.properties."linger.ms": librdkafka does not take this value'):
        settings_for("localhost:9092", {"linger.ms": "soon"})


@pytest.mark.broker
def test_topics_that_are_missing_are_waited_for(guarded: Guarded) -> None:
    absent = {"topic": "absent", "user": "u", "key": ["k"]}
    settings = settings_for(guarded.open, {}, pipeline={"name": "none", "prefix": "t"}, input=absent)
    admin = guarded.admin()
    text, waits = seen(settings)
    assert text.startswith('input.topic="absent": does not exist on this cluster; it belongs to its producers')
    assert (
        "--create --topic absent --partitions 2 --replication-factor 1 --config message.timestamp.type=LogAppendTime"
        in text
    )
    assert "topics create`" not in text  # which never makes it
    assert waits
    create_topic(admin, "absent")
    wait_for(lambda: "input.topic" not in seen(settings)[0], "the broker knows the topic")
    text, waits = seen(settings)
    assert text.startswith('pipeline.name="none": its topics do not exist yet (t.none.by-user, t.none.bounded, ')
    assert "run `susurrus topics create --config ...`" in text
    assert waits
    create_topics(settings, admin)
    wait_for(
        lambda: probe.look(pipeline_of(settings)) == probe.Ready(brokers=1, partitions=1 + 2 + 2), "nothing is missing"
    )


TOPIC, GROUP, TRANSACTION = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
LITERAL, PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
RIGHTS = (
    (TOPIC, "raw", LITERAL, "READ"),
    (TOPIC, "raw", LITERAL, "DESCRIBE"),
    *((TOPIC, "s.p.", PREFIXED, right) for right in ("READ", "WRITE", "DESCRIBE", "DELETE")),
    (GROUP, "s.p", LITERAL, "READ"),
    (TRANSACTION, "s.p-", PREFIXED, "WRITE"),
    (TOPIC, "s.charges", LITERAL, "READ"),
    (TOPIC, "s.charges", LITERAL, "WRITE"),
)
"""What a worker needs; Read and Write bring Describe with them."""


def grant(guarded: Guarded, rights: Any) -> None:
    """These rights, and no others, as soon as the broker knows of them."""
    admin = guarded.admin()
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, PRINCIPAL, None, AclOperation.ANY, AclPermissionType.ANY
    )
    for future in admin.delete_acls([everything]).values():
        future.result(20)
    bindings = [
        AclBinding(kind, name, pattern, PRINCIPAL, "*", AclOperation[right], AclPermissionType.ALLOW)
        for kind, name, pattern, right in rights
    ]
    for future in (admin.create_acls(bindings) if bindings else {}).values():
        future.result(20)


@pytest.mark.broker
def test_a_missing_right_is_named_with_the_command_that_gives_it(guarded: Guarded) -> None:
    settings = settings_for(guarded.password, SASL)
    admin = guarded.admin()
    create_topic(admin, "raw", 2)
    create_topics(settings, admin)
    grant(guarded, RIGHTS)
    wait_for(lambda: isinstance(probe.look(pipeline_of(settings)), probe.Ready), "all rights are there")
    command = f"    kafka-acls.sh --bootstrap-server {guarded.password} --add --allow-principal User:susurrus"
    read, prefixed = "--operation Read --operation Describe", "--resource-pattern-type prefixed"
    all_topics = f"--operation Read --operation Write --operation Delete --operation Describe {prefixed} --topic s.p."
    transactional = f"--operation Write --operation Describe {prefixed} --transactional-id s.p-"
    charges = "--operation Read --operation Write --operation Describe --topic s.charges"
    for missing, says, gives in (
        (RIGHTS[0], 'Read on input.topic="raw"', f"{read} --operation DescribeConfigs --topic raw"),
        (RIGHTS[2], 'Read on topic="s.p.by-user" (and 9 more)', all_topics),
        (RIGHTS[3], 'Write on topic="s.p.by-user" (and 9 more)', all_topics),
        (RIGHTS[5], 'Delete on topic="s.p.by-user" (and 1 more)', all_topics),
        (RIGHTS[6], 'Describe on group="s.p"', f"{read} --group s.p"),
        (RIGHTS[7], 'Write on transactional-id="s.p-..."', transactional),
        (RIGHTS[9], 'Write on topic="s.charges"', charges),
    ):
        grant(guarded, [right for right in RIGHTS if right != missing])
        wait_for(lambda: not isinstance(probe.look(pipeline_of(settings)), probe.Ready), "the right is gone")
        text, waits = seen(settings)
        assert text.splitlines()[0].startswith(f"the right {says}"), missing
        assert text.splitlines()[1] == f"{command} {gives}"
        assert not waits
    # `susurrus status` says the same, beside what it can show.
    grant(guarded, [right for right in RIGHTS if right != RIGHTS[5]])
    wait_for(lambda: "right Delete" in said_now(settings), "Delete is gone")
    found, starting = what_runs(pipeline_of(settings))
    assert starting
    assert found.workers == 0
    assert {row.state for row in found.partitions} == {"missing"}
    assert 'the right Delete on topic="s.p.by-user"' in sentences(starting)
    grant(guarded, [*(right for right in RIGHTS if right != RIGHTS[6]), (GROUP, "s.p", LITERAL, "DESCRIBE")])
    wait_for(lambda: "right Read on group" in said_now(settings), "Read is gone")
    grant(guarded, [])
    wait_for(lambda: 'input.topic="raw"' in said_now(settings), "all are gone")
    assert len(seen(settings)[0].splitlines()) == 10  # all that is missing is said together


def test_what_passes_by_itself_is_said_and_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    away = Finding("brokers", "failure", "no broker", "start it", waits=True)
    missing = Finding("topics", "failure", "no topics", "create them", waits=True)
    found = [[away], [missing], probe.Ready(3, 8)]
    monkeypatch.setattr(probe, "look", lambda pipeline: found.pop(0))
    monkeypatch.setattr(probe, "_PAUSE_SECONDS", (0.0,))
    shown: list[Finding | None] = []
    assert probe.wait_until_ready(pipeline_of(settings_for("localhost:9092", {})), shown.append) == probe.Ready(3, 8)
    assert shown == [away, missing, None]


def test_what_an_operator_must_fix_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "look", lambda pipeline: [Finding("rights", "failure", "no right", "give it")])
    with pytest.raises(ConfigurationError, match="no right; give it"):
        probe.wait_until_ready(pipeline_of(settings_for("localhost:9092", {})), lambda text: None)


CONFIGURATION = """
[pipeline]
name = "p"
[kafka]
bootstrap_servers = "{servers}"
[input]
topic = "raw"
user = "u"
key = ["k"]
[privacy]
epsilon = 1.0
delta = 1e-9
"""


def test_a_worker_that_waits_says_for_what_and_ends_at_sigterm(tmp_path: Path) -> None:
    port, web = free_ports(2)
    config = tmp_path / "p.toml"
    config.write_text(CONFIGURATION.format(servers=f"127.0.0.1:{port}") + f"[worker]\nweb_port = {web}\n")
    with (tmp_path / "log").open("wb") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "susurrus.agents.cli", "worker", "--config", str(config)],
            env={"PATH": "", "SUSURRUS_SECRET": "5a" * 32},
            cwd=tmp_path,
            stdout=log,
            stderr=log,
        )
        ends_with_us(worker.pid)
    try:
        wait_for(lambda: "nothing listens at" in (tmp_path / "log").read_text(), "it says what it waits for")
        cause = f'kafka.bootstrap_servers="127.0.0.1:{port}": nothing listens at 127.0.0.1:{port}'
        assert get(web, "/healthz") == (200, "ok\n")
        assert (get(web, "/readyz")[0], cause in get(web, "/readyz")[1], cause in get(web, "/")[1]) == (503, True, True)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0
    finally:
        worker.kill()
        worker.wait(30)
    said = (tmp_path / "log").read_text()
    assert "Traceback" not in said
