"""Properties of Kafka's clients, by the clients that librdkafka makes of them: what is refused, and in which words."""

import ctypes
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import confluent_kafka.cimpl
import pytest

from susurrus.agents.config import kafka_checks, kafka_names, kafka_owned
from susurrus.agents.finding import refuse
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
        refuse(profiles.refusals(settings(properties)))
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
    found = list(profiles.findings(settings({"queued.min.messages": 5, "compression.codec": "zstd", "linger.ms": 1})))
    assert [one.text for one in found] == [
        'kafka.properties."queued.min.messages": the consumer of the raw topic has no such setting; all other clients follow it',
        'kafka.properties."compression.codec": some clients have their own value and do not follow it: lz4 (producers of '
        "partitions)",
        'kafka.properties."linger.ms": some clients have their own value and do not follow it: 50 (producer of status)',
    ]
    assert {(one.level, one.action) for one in found} == {("warning", "leave it out, unless the others need it")}
    assert list(profiles.findings(settings({"client.id": "me", "fetch.min.bytes": 1}))) == []


def test_a_command_says_the_same() -> None:
    with pytest.raises(ConfigurationError, match=r'"ssl\.ca\.location": librdkafka cannot load it here'):
        admin_of(settings({"security.protocol": "SSL", "ssl.ca.location": "/nowhere"}), [])


@pytest.mark.parametrize("name", ["group.protocol", "group.protocol.type", "group.remote.assignor"])
def test_another_protocol_of_groups_is_refused(name: str) -> None:
    line = refused({name: "consumer"})
    assert line.startswith(f'kafka.properties."{name}": leave it out; all members of a group need the same')


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ({"test.mock.num.brokers": 3}, "belongs to programs"),
        ({"enabled_events": 4}, "belongs to programs"),
        ({"ssl_key": "x"}, "belongs to programs"),
        ({"internal.termination.signal": 29}, "belongs to programs"),
        ({"sasl.jaas.config": SECRET}, "is for Java; write sasl.username and sasl.password"),
        ({"ssl.truststore.location": "/t.jks"}, "is for Java; write the authority's certificate as PEM"),
        ({"api.version.request": "false"}, "without the brokers' versions there are no transactions"),
        ({"offset.store.method": "file"}, "leave it out; offsets are committed inside the transactions only"),
        ({"queuing.strategy": "lifo"}, "leave it out; transactions need the order"),
        ({"topic.blacklist": "^p"}, "leave it out; a topic that it hides"),
    ],
    ids=str,
)
def test_what_librdkafka_would_take_and_no_pipeline_survives_is_refused(properties: dict[str, Any], says: str) -> None:
    [name] = properties
    line = refused(properties)
    assert line.startswith(f'kafka.properties."{name}": ')
    assert says in line


def test_every_owned_property_is_refused_and_every_one_without_effect_is_warned_of() -> None:
    for name in kafka_owned.OWNED:
        assert refused({name: "1"}).startswith(f'kafka.properties."{name}": leave it out; '), name
    for name in kafka_owned.PROGRAMS | kafka_owned.JAVA.keys():
        assert refused({name: "1"}).startswith(f'kafka.properties."{name}": '), name
    value = {
        "api.version.request": "true", "broker.version.fallback": "0.10.0", "builtin.features": "ssl",
        "produce.offset.report": "true", "enable.random.seed": "true", "share.acknowledgement.mode": "implicit",
    }  # fmt: skip
    for name in kafka_owned.WITHOUT_EFFECT:
        [found] = profiles.findings(settings({name: value.get(name, 10)}))
        assert found.text.startswith(f'kafka.properties."{name}": has no effect; '), name
        assert found.action == "leave it out"


def test_a_property_that_only_a_newer_librdkafka_knows_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_checks, "SORTED", kafka_names.SORTED - {"debug"})
    lines = list(profiles.findings(settings({"debug": "conf"})))
    assert any("Susurrus does not know what it does there" in line.text for line in lines)


class Library:
    """librdkafka's own lists, which confluent-kafka does not offer."""

    def __init__(self) -> None:
        self.library, self.c = ctypes.CDLL(confluent_kafka.cimpl.__file__), ctypes.CDLL(None)

    def shown(self, path: Path) -> list[str]:
        """The lines of its documentation."""
        self.c.fopen.restype = ctypes.c_void_p
        self.c.fclose.argtypes = self.library.rd_kafka_conf_properties_show.argtypes = [ctypes.c_void_p]
        file = self.c.fopen(str(path).encode(), b"w")
        self.library.rd_kafka_conf_properties_show(file)
        self.c.fclose(file)
        return path.read_text().splitlines()

    def dumped(self) -> set[str]:
        """The names of a new configuration's values, hidden ones, too."""
        found: set[str] = set()
        for kind in ("conf", "topic_conf"):
            new, dump = (getattr(self.library, f"rd_kafka_{kind}_{what}") for what in ("new", "dump"))
            new.restype, dump.restype = ctypes.c_void_p, ctypes.POINTER(ctypes.c_char_p)
            dump.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)]
            count = ctypes.c_size_t()
            pairs = dump(new(), ctypes.byref(count))
            found |= {(pairs[i] or b"").decode() for i in range(0, count.value, 2)}
        return found


def test_every_name_of_librdkafka_is_sorted(tmp_path: Path) -> None:
    scopes: dict[str, set[str]] = {"*": set(), "C": set(), "P": set()}
    aliases: dict[str, str] = {}
    choices: dict[str, str] = {}
    library = Library()
    for line in library.shown(tmp_path / "list"):
        name, scope, values, *_ = [part.strip() for part in line.split("|")] + [""] * 2
        scope = scope.replace("C/P", "*")
        if scope not in scopes or name == "Property":
            continue
        scopes[scope].add(name)
        if (alias := re.search(r"Alias for `([^`]+)`", line)) is not None:
            aliases[name] = alias[1]
        if "," in values and values != "true, false" and name not in ("debug", "builtin.features"):
            choices.setdefault(name, values)
    every = set().union(*scopes.values())
    hidden = library.dumped() - every
    assert "test.mock.num.brokers" in hidden
    sets = [kafka_names.PASSED, set(kafka_owned.OWNED), set(kafka_owned.WITHOUT_EFFECT), set(kafka_owned.PROGRAMS)]
    unsorted = (every | hidden) - set().union(*sets)
    assert not unsorted, f"sort {sorted(unsorted)} into kafka_names.py (passed on) or kafka_owned.py"
    # Three have no value in a new configuration, or are confluent-kafka's.
    gone = set().union(*sets) - every - hidden - {"logger", "client.software.version", "ut_handle_ProduceResponse"}
    assert not gone
    assert sum(map(len, sets)) == len(set().union(*sets))
    passed = {scope: names & kafka_names.PASSED for scope, names in scopes.items()}
    assert passed == {"*": kafka_names.EVERY_CLIENT, "C": kafka_names.CONSUMERS, "P": kafka_names.PRODUCERS}
    assert aliases == kafka_names.ALIASES
    assert choices == kafka_names.CHOICES
