"""Properties of Kafka's clients, by the clients that librdkafka makes of them: what is refused, and in which words."""

import ctypes
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import confluent_kafka.cimpl
import pytest

from susurrus.agents.config import kafka_names
from susurrus.agents.kafka import profiles
from susurrus.agents.operations.brokers import admin_of
from susurrus.agents.pipelines import settings_from
from susurrus.mechanisms.errors import ConfigurationError

SECRET = "hunter2-hunter2"


def settings(properties: dict[str, Any], **sections: Any) -> Any:
    return settings_from(
        {
            "pipeline": {"name": "p"},
            "kafka": {"properties": properties},
            "input": {"topic": "raw", "user": "u", "key": ["k"]},
            "privacy": {"epsilon": 1.0, "delta": 1e-9},
            **sections,
        },
        environ={},
    )


def refused(properties: dict[str, Any]) -> str:
    with pytest.raises(ConfigurationError) as caught:
        profiles.check(settings(properties))
    assert SECRET not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ({"securty.protocol": "SSL"}, '"securty.protocol": librdkafka has no such property; did you mean "security.protocol"?'),
        ({"bogus": 1}, '"bogus": librdkafka has no such property; correct its name, or leave it out'),
        ({"linger.ms": "soon"}, '"linger.ms": librdkafka does not take this value; write a number'),
        ({"linger.ms": -7}, '"linger.ms": librdkafka takes 0 to 900000; correct the value'),
        ({"compression.codec": "zip"}, "use one of none, gzip, snappy, lz4, zstd"),
        ({"socket.keepalive.enable": "maybe"}, '"socket.keepalive.enable": write true or false'),
        ({"request.timeout.ms": "7.5"}, '"request.timeout.ms": write a whole number'),
        ({"error_cb": "x"}, '"error_cb": belongs to programs, not to a configuration; leave it out'),
        ({"on_delivery": "x"}, '"on_delivery": belongs to programs'),
        ({"default.topic.config": "x"}, '"default.topic.config": belongs to programs'),
        ({"opaque": "x"}, '"opaque": belongs to programs'),
        ({"metadata.broker.list": "b:1"}, '"metadata.broker.list": leave it out; set kafka.bootstrap_servers instead'),
        ({"transaction.timeout.ms": 5000}, '"transaction.timeout.ms": leave it out; set worker.transaction_timeout instead'),
        ({"request.required.acks": 1}, '"request.required.acks": leave it out; transactions need all replicas'),
    ],
    ids=str,
)  # fmt: skip
def test_each_property_alone_is_refused_where_the_file_is_read(properties: dict[str, Any], says: str) -> None:
    line = refused(properties)
    assert line.startswith("kafka.properties.")
    assert says in line
    assert "\n" not in line


@pytest.mark.parametrize(
    ("properties", "names", "says"),
    [
        ({"retries": 0}, ["retries"], "makes no producers (`retries` must be set >= 1 when `enable.idempotence` is true)"),
        ({"max.in.flight": 100}, ["max.in.flight"], "must be set <= 5"),
        ({"session.timeout.ms": 400_000, "linger.ms": 5}, ["session.timeout.ms"], "makes no consumers ("),
        ({"receive.message.max.bytes": 1000}, ["receive.message.max.bytes"], "`fetch.max.bytes` + 512"),
        ({"security.protocol": "SSL", "ssl.ca.location": "/nowhere"}, ["ssl.ca.location"], "cannot load it here; correct the file"),
        ({"security.protocol": "SSL", "ssl.ca.pem": SECRET}, ["ssl.ca.pem"], "makes no client with it; correct the value"),
    ],
    ids=str,
)  # fmt: skip
def test_what_only_a_client_shows_is_blamed_on_the_property(
    properties: dict[str, Any], names: list[str], says: str
) -> None:
    line = refused(properties)
    assert re.findall(r'kafka\.properties\."([^"]+)"', line) == names
    assert says in line
    # Each of them is accepted alone: without the clients nobody would know.
    settings(properties)


def test_every_client_is_made_with_usual_properties() -> None:
    usual = {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "me",
        "sasl.password": SECRET, "session.timeout.ms": 20_000, "client.id": "x", "linger.ms": 5,
    }  # fmt: skip
    assert profiles.refusals(settings(usual)) == []
    assert profiles.refusals(settings({})) == []


def test_no_client_connects_or_stays() -> None:
    """Threads of librdkafka are none of Python's, so they are counted by the kernel."""
    code = (
        "import os, tests.agents.kafka.test_profiles as t\n"
        "from susurrus.agents.kafka import profiles\n"
        "ours = t.settings({}, kafka={'bootstrap_servers': '127.0.0.1:1'})\n"
        "profiles.refusals(ours)\n"
        "before = len(os.listdir('/proc/self/task'))\n"
        "for _ in range(20): profiles.refusals(ours)\n"
        "print(len(os.listdir('/proc/self/task')) - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3]
    )
    assert done.stdout.strip() == "0"
    assert done.stderr == ""


def test_what_some_clients_do_not_follow_is_said() -> None:
    found = list(profiles.notes(settings({"queued.min.messages": 5, "compression.codec": "zstd", "linger.ms": 1})))
    assert found == [
        'kafka.properties."queued.min.messages": the consumer of the raw topic has no such setting; all other clients follow it',
        'kafka.properties."compression.codec": some clients have their own value and do not follow it: lz4 (producers of '
        "partitions)",
        'kafka.properties."linger.ms": some clients have their own value and do not follow it: 50 (producer of status)',
    ]
    assert list(profiles.notes(settings({"client.id": "me", "fetch.min.bytes": 1}))) == []


def test_a_command_says_the_same() -> None:
    with pytest.raises(ConfigurationError, match=r'"ssl\.ca\.location": librdkafka cannot load it here'):
        admin_of(settings({"security.protocol": "SSL", "ssl.ca.location": "/nowhere"}), [])


def test_the_names_are_librdkafkas(tmp_path: Path) -> None:
    """The library prints its own list, in C."""
    library, c = ctypes.CDLL(confluent_kafka.cimpl.__file__), ctypes.CDLL(None)
    c.fopen.restype = ctypes.c_void_p
    c.fclose.argtypes = library.rd_kafka_conf_properties_show.argtypes = [ctypes.c_void_p]
    file = c.fopen(str(tmp_path / "list").encode(), b"w")
    library.rd_kafka_conf_properties_show(file)
    c.fclose(file)
    scopes: dict[str, set[str]] = {"*": set(), "C": set(), "P": set()}
    aliases, choices = {}, {}
    for line in (tmp_path / "list").read_text().splitlines():
        name, scope, values, *_ = [part.strip() for part in line.split("|")] + [""] * 2
        scope = scope.replace("C/P", "*")
        inner = ("_" in name and name != "log_level") or name in (
            "Property",
            "opaque",
            "interceptors",
            "builtin.features",
        )
        if scope not in scopes or inner:
            continue
        scopes[scope].add(name)
        if (alias := re.search(r"Alias for `([^`]+)`", line)) is not None:
            aliases[name] = alias[1]
        if "," in values and values != "true, false" and name != "debug":
            choices.setdefault(name, values)
    assert scopes == {"*": kafka_names.EVERY_CLIENT, "C": kafka_names.CONSUMERS, "P": kafka_names.PRODUCERS}
    assert aliases == kafka_names.ALIASES
    assert choices == kafka_names.CHOICES
