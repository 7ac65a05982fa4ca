"""The properties of each client that a worker makes, and a check that makes these clients without connecting.

librdkafka judges many properties only together, and only when a client is made: sizes that must fit each other, certificates,
what idempotence needs. So the check makes one client of each profile, without the addresses of brokers, and destroys it at once.
`susurrus config check`, `susurrus preflight` and a worker that has not joined its group yet do so.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from susurrus.agents.config import kafka_tokens
from susurrus.agents.config.kafka_checks import not_translated, of_section, place, without_effect
from susurrus.agents.config.kafka_names import ALIASES
from susurrus.agents.config.kafka_properties import mechanism_of, offline, protocol_of, tls_context
from susurrus.agents.config.sections import ClusterSettings
from susurrus.agents.config.settings import Settings
from susurrus.agents.finding import Finding
from susurrus.agents.logs import SILENT
from susurrus.mechanisms.errors import ConfigurationError

_CALLED: Final[Mapping[Any, str]] = {Producer: "producers", Consumer: "consumers", AdminClient: "admin clients"}
_SECRET: Final = re.compile(r"password|passphrase|secret|pem|config|token|username|assertion|userinfo")
"""Properties about which librdkafka's own words might hold what was given."""
_SUBJECT: Final = "kafka.properties"
_OTHERS: Final = "leave it out, unless the others need it"
_SECURITY: Final = ("security.protocol", "sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password")


def transactional_producer(transactional_id: str, *, timeout: int) -> dict[str, Any]:
    """The properties of one partition task's producer. timeout: of its transactions, in ms."""
    return {
        "transactional.id": transactional_id,
        # The open transaction of a dead owner holds every read_committed reader back for this long.
        "transaction.timeout.ms": timeout,
        # Back-to-back transactions meet CONCURRENT_TRANSACTIONS; librdkafka would sleep 100 ms for each.
        "retry.backoff.ms": 5,
        # A missing topic must be reported before the broker aborts the transaction, which would look like fencing.
        "topic.metadata.propagation.max.ms": min(10_000, timeout // 3),
        # Every commit waits until its last record is sent: a longer wait would be spent in each, and what comes within a
        # millisecond, or while the transaction learns its partitions, makes batches enough.
        "linger.ms": 1,
        "compression.type": "lz4",
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 1 << 20,
        "message.max.bytes": 1_000_000_000,
        # The default partitioner never decides: every record names its partition (topics/wire/partitioner.py).
    }


def plain_producer(*, embedded: bool) -> dict[str, Any]:
    """The properties of a producer of records outside transactions, such as status. It is idempotent on a real cluster."""
    return {"enable.idempotence": not embedded, "linger.ms": 50}


def reader(group: str, *, lost: str, embedded: bool, follows: bool = False) -> dict[str, Any]:
    """The properties of a read_committed consumer that is assigned by hand. lost: what it does where its offset has been
    deleted. follows: whether it stays at the end of its partitions."""
    return {
        "group.id": group,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "auto.offset.reset": lost,
        # The end of a partition shows in a fetch that brings nothing. Records come at once, whatever a fetch may wait.
        "fetch.wait.max.ms": 500 if follows else 50,
        "fetch.message.max.bytes": 8 << 20,
        "allow.auto.create.topics": embedded,
    }


def admin(*, embedded: bool) -> dict[str, Any]:
    """The properties of the shared admin client."""
    return {"allow.auto.create.topics": embedded}


def group(name: str) -> dict[str, Any]:
    """The properties of a consumer that is asked about its group only."""
    return {"group.id": name}


@dataclass(frozen=True, slots=True)
class Profile:
    """A client that a worker makes. own: properties that go over the operator's."""

    what: str
    make: Any
    own: Mapping[str, Any]


def profiles_of(settings: Settings) -> tuple[Profile, ...]:
    """Every client that a worker of these settings makes with confluent-kafka."""
    application, embedded = settings.application, settings.kafka.embedded
    timeout = settings.worker.transaction_timeout
    return (
        Profile("producers of partitions", Producer, transactional_producer(application, timeout=timeout)),
        Profile("producer of status", Producer, plain_producer(embedded=embedded)),
        Profile("readers of the pipeline's own topics", Consumer, reader(application, lost="error", embedded=embedded)),
        Profile("consumer of the group's metadata", Consumer, group(application)),
        Profile("admin client", AdminClient, admin(embedded=embedded)),
    )


def profiles_of_raw(settings: Settings) -> tuple[Profile, ...]:
    """Those of the cluster with the raw topics, where that is another one."""
    return (
        Profile("readers of raw topics", Consumer, reader(settings.application, lost="error", embedded=False)),
        Profile("admin client", AdminClient, admin(embedded=False)),
    )


def _clusters(settings: Settings) -> Iterator[tuple[ClusterSettings, tuple[Profile, ...]]]:
    yield settings.kafka, profiles_of(settings)
    if settings.input.kafka is not None:
        yield settings.input.kafka, profiles_of_raw(settings)


def refusals(settings: Settings) -> list[Finding]:
    """What librdkafka refuses when it makes the clients of a worker. Nothing connects, and no finding holds a property's value.

    A finding is unknown where another machine may have what is missing on this one.
    """
    return [of_section(kafka, one) for kafka, profiles in _clusters(settings) for one in _refused(kafka, profiles)]


def files_refused(settings: Settings) -> Finding | None:
    """Why Python's TLS cannot load the files of a cluster on this machine; None where it can. Unknown, as those of `refusals`."""
    for kafka in settings.clusters:
        try:
            tls_context(kafka)
        except ConfigurationError as error:
            return Finding(f"{kafka.section}.properties", "unknown", error.text, error.action)
    return None


def _refused(kafka: ClusterSettings, profiles: Sequence[Profile]) -> list[Finding]:
    given = dict(kafka.properties)
    if not kafka_tokens.signs(mechanism_of(given)):
        return [kafka_tokens.NO_SIGNER]
    said = [(profile, _made(profile, given)) for profile in profiles]
    found = [_explained(profile, given, text) for profile, text in said if text is not None]
    return list({one.text.partition(": ")[0]: one for one in reversed(found)}.values())


def findings(settings: Settings) -> Iterator[Finding]:
    """Warnings of properties without effect, or that some clients do not follow where an operator may expect that all do."""
    for kafka, profiles in _clusters(settings):
        yield from (of_section(kafka, one) for one in _warnings(kafka, profiles))


def _warnings(kafka: ClusterSettings, profiles: Sequence[Profile]) -> Iterator[Finding]:
    properties = kafka.properties
    said = list(without_effect(properties))
    if protocol_of(properties).startswith("SASL"):
        said += kafka_tokens.for_tests(mechanism_of(properties), properties)
    for name in not_translated(properties):
        said.append((name, "the consumer of the raw topic has no such setting; all other clients follow it", _OTHERS))
    given = {ALIASES.get(name, name): name for name in properties}
    for canonical, name in given.items():
        others = [
            f"{value} ({profile.what})"
            for profile in profiles
            for own, value in profile.own.items()
            if ALIASES.get(own, own) == canonical and str(value).lower() != str(properties[name]).lower()
        ]
        if others:
            said.append((name, f"some clients have their own value and do not follow it: {', '.join(others)}", _OTHERS))
    return (Finding(_SUBJECT, "warning", f"{place(name)}: {text}", action) for name, text, action in said)


def _made(profile: Profile, given: Mapping[str, Any]) -> str | None:
    """Make a client and destroy it; what librdkafka says where it does not make it."""
    try:
        client = profile.make({**offline(given), **profile.own}, logger=SILENT)
    except KafkaException as error:
        return str(error.args[0].str())
    if isinstance(client, Consumer):
        client.close()
    return None


def _explained(profile: Profile, given: Mapping[str, Any], said: str) -> Finding:
    """What is wrong with one profile: whose absence would mend it, and librdkafka's reason where that cannot hold a value."""
    reason = said.partition(": ")[2] if said.startswith("Failed to create") else said
    reason = reason.replace("`must", "` must")
    if reason.startswith("No provider for SASL mechanism"):
        name = next((name for name in _SECURITY[1:3] if name in given), "sasl.mechanism")
        return Finding(
            _SUBJECT,
            "unknown",
            f"{place(name)}: the librdkafka of this installation lacks the mechanism",
            "use SCRAM-SHA-512 or PLAIN, or install confluent-kafka from its sources, with libsasl2",
        )
    blamed = [name for name in given if _made(profile, {n: v for n, v in given.items() if n != name}) is None]
    blamed = [name for name in blamed if name not in _SECURITY] or blamed
    named = [name for name in given if f"{name} failed" in reason] or blamed
    names = " and ".join(place(name) for name in named) or "kafka.properties"
    if " failed: " in reason or reason.startswith("ssl."):
        text = f"{names}: librdkafka cannot load it here"
        return Finding(_SUBJECT, "unknown", text, "correct the file, its format or its password")
    correct = "correct the value, or leave it out"
    if any(_SECRET.search(name) for name in named):
        return Finding(_SUBJECT, "failure", f"{names}: librdkafka makes no client with it", correct)
    shown = re.sub(r"\s+", " ", reason).strip().rstrip(".")
    for value in given.values():
        if isinstance(value, str) and len(value) > 3:
            shown = shown.replace(value, "…")
    return Finding(_SUBJECT, "failure", f"{names}: librdkafka makes no {_CALLED[profile.make]} ({shown})", correct)
