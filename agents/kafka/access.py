"""What Kafka must allow whom: the rights of each role on topics, groups and transactional ids.

The one place that knows them. `susurrus acls` prints or grants them; a worker that lacks one names the command that gives it
(agents/operations/probe.py). Rights on a whole prefix end with the separator, so that they cover no other pipeline.
"""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from susurrus.agents.config.raw_topics import literal_prefix
from susurrus.agents.config.sections import ClusterSettings
from susurrus.agents.config.settings import Settings
from susurrus.agents.kafka.requests import REQUEST_SECONDS, answer_of
from susurrus.topics.spec import HISTOGRAM, REPORTS, THRESHOLD, TopicSpec

Role = Literal["worker", "operator", "writer", "reader", "dashboard"]
Resource = Literal["topic", "group", "transactional-id"]

_PURGED: Final = ("by-user", "bounded")
"""Topics in which workers delete what has been read."""
_CLOCK: Final = "__transaction_state"
"""The topic whose time stamps are the brokers' clocks, which `susurrus preflight` compares with its own."""
_TYPES: Final[Mapping[Resource, ResourceType]] = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
}
_OF: Final[Mapping[ResourceType, Resource]] = {kind: name for name, kind in _TYPES.items()}
_DESCRIBE, _READ, _WRITE, _DELETE = AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE
_SHOW, _CREATE, _ALTER = AclOperation.DESCRIBE_CONFIGS, AclOperation.CREATE, AclOperation.ALTER


@dataclass(frozen=True, slots=True)
class Right:
    """Operations on a resource; prefixed: on all whose names begin with ``name``. elsewhere: on the cluster of the raw topics,
    where that is another one."""

    resource: Resource
    name: str
    operations: tuple[AclOperation, ...]
    prefixed: bool = False
    elsewhere: bool = False

    def covers(self, resource: Resource, name: str) -> bool:
        """Whether this right is about that resource."""
        found = name.startswith(self.name) if self.prefixed else self.name in (name, "*")
        return resource == self.resource and found

    def cluster(self, settings: Settings) -> ClusterSettings:
        """Where it is granted."""
        return settings.raw_kafka if self.elsewhere else settings.kafka

    def command(self, settings: Settings, principal: str) -> str:
        """The command that grants it. principal: as the shell takes it."""
        servers = self.cluster(settings).bootstrap_servers
        operations = " ".join(f"--operation {word(operation)}" for operation in self.operations)
        pattern = "--resource-pattern-type prefixed " if self.prefixed else ""
        return (
            f"kafka-acls.sh --bootstrap-server {servers} --add --allow-principal {principal} {operations} "
            f"{pattern}--{self.resource} {shlex.quote(self.name)}"
        )

    def bindings(self, principal: str) -> list[AclBinding]:
        """The same for the admin client: one for each operation, from any host."""
        pattern = ResourcePatternType.PREFIXED if self.prefixed else ResourcePatternType.LITERAL
        kind = _TYPES[self.resource]
        return [
            AclBinding(kind, self.name, pattern, principal, "*", operation, AclPermissionType.ALLOW)
            for operation in self.operations
        ]


def word(operation: AclOperation) -> str:
    """The operation as kafka-acls.sh writes it."""
    return str(operation.name).title().replace("_", "")


def rights_of(settings: Settings, role: Role, *, group: str | None = None) -> tuple[Right, ...]:
    """What a role needs. group: the consumer group of a reader, if it uses one.

    worker: runs the pipeline. operator: also creates and checks topics, ends epochs and looks at everything. writer: writes what
    the pipeline reads. reader: reads what is public, topic by topic, because the other topics hold what the noise must hide.
    dashboard: reads that and the log of charges.
    """
    match role:
        case "worker":
            return _worker(settings)
        case "operator":
            own = Right("topic", _own(settings), (_READ, _WRITE, _DELETE, _DESCRIBE, _SHOW, _CREATE, _ALTER), True)
            shared = Right("topic", _shared(settings), (_READ, _WRITE, _DESCRIBE, _SHOW, _CREATE))
            taken = [
                right for right in _worker(settings) if right.name not in (own.name, shared.name) or right.elsewhere
            ]
            return (*taken, own, shared, Right("topic", _CLOCK, (_DESCRIBE,)))
        case "writer":
            if settings.reads_raw:
                return _on_raw_topics(settings, _WRITE, _DESCRIBE)
            return (
                Right("topic", settings.topic(REPORTS.name), (_WRITE, _DESCRIBE)),
                Right("topic", settings.topic(THRESHOLD.name), (_READ, _DESCRIBE)),
            )
        case "reader":
            names = [settings.topic(spec.name) for spec in settings.topic_specs if spec.readers == "public"]
            groups = () if group is None else (Right("group", group, (_READ, _DESCRIBE)),)
            return (*(Right("topic", name, (_READ, _DESCRIBE)) for name in names), _assigned(settings), *groups)
        case "dashboard":
            charged = Right("topic", _shared(settings), (_READ, _DESCRIBE))
            return (*rights_of(settings, "reader"), *((charged,) if HISTOGRAM in settings.topic_specs else ()))


def _worker(settings: Settings) -> tuple[Right, ...]:
    application = settings.application
    return (
        *(_on_raw_topics(settings, _READ, _DESCRIBE, _SHOW) if settings.reads_raw else ()),
        *(() if settings.input.kafka is None else (replace(_assigned(settings), elsewhere=True),)),
        Right("topic", _own(settings), (_READ, _WRITE, _DELETE, _DESCRIBE), True),
        Right("topic", _shared(settings), (_READ, _WRITE, _DESCRIBE)),
        Right("group", application, (_READ, _DESCRIBE)),
        _assigned(settings),
        Right("transactional-id", f"{application}-", (_WRITE, _DESCRIBE), True),
    )


def _on_raw_topics(settings: Settings, *operations: AclOperation) -> tuple[Right, ...]:
    """Rights on the topics that the file names; with a pattern, on all whose names begin as every name must that it matches."""
    elsewhere = settings.input.kafka is not None
    if settings.input.topic_pattern is None:
        return tuple(Right("topic", topic, operations, elsewhere=elsewhere) for topic in settings.input.listed)
    begin = literal_prefix(settings.input.topic_pattern)
    return (Right("topic", begin or "*", operations, bool(begin), elsewhere),)


def _assigned(settings: Settings) -> Right:
    """The right of consumers that are assigned by hand. They join no group and commit nothing, but librdkafka looks for the
    coordinator of theirs."""
    return Right("group", f"{settings.application}-", (_DESCRIBE,), True)


def _own(settings: Settings) -> str:
    return settings.topic("")


def _shared(settings: Settings) -> str:
    return settings.topics.charges


def needed_on_topics(settings: Settings) -> dict[str, set[AclOperation]]:
    """What a worker cannot run without, for every topic of the pipeline by full name, and the shared one. Read and Write bring
    Describe with them."""
    return {
        **{settings.topic(spec.name): _needed(spec) for spec in settings.topic_specs},
        _shared(settings): {_READ, _WRITE},
    }


def needed_on_raw_topics(raw_topics: Iterable[str]) -> dict[str, set[AclOperation]]:
    """The same for raw topics, which may be on another cluster."""
    return {topic: {_READ} for topic in raw_topics}


def _needed(spec: TopicSpec) -> set[AclOperation]:
    return {_READ, _WRITE, _DELETE} if spec.name in _PURGED else {_READ, _WRITE}


def right_on(settings: Settings, resource: Resource, name: str) -> Right:
    """The worker's right that covers a resource of the pipeline."""
    return next(right for right in _worker(settings) if right.covers(resource, name))


def missing_rights(admin: AdminClient, principal: str, rights: Iterable[Right]) -> list[Right]:
    """What of ``rights`` no rule for the principal itself grants yet, each with the operations that are missing.

    Raises KafkaException without the right to ask (Describe on the cluster), and where the brokers have no authorizer.
    """
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, principal, None, AclOperation.ANY, AclPermissionType.ALLOW
    )
    found = answer_of(admin.describe_acls(everything, request_timeout=REQUEST_SECONDS))
    granted: dict[tuple[Any, ...], set[AclOperation]] = {}
    for rule in found:
        if rule.host == "*" and rule.restype in _OF:
            prefixed = rule.resource_pattern_type == ResourcePatternType.PREFIXED
            granted.setdefault((_OF[rule.restype], rule.name, prefixed), set()).add(rule.operation)
    missing = []
    for right in rights:
        have = granted.get((right.resource, right.name, right.prefixed), set())
        if AclOperation.ALL in have:
            continue
        if operations := tuple(one for one in right.operations if one not in have):
            missing.append(replace(right, operations=operations))
    return missing


def grant(admin: AdminClient, principal: str, rights: Iterable[Right]) -> None:
    """Grant them. What is granted already stays. Raises KafkaException without the right to (Alter on the cluster)."""
    if bindings := [binding for right in rights for binding in right.bindings(principal)]:
        for future in admin.create_acls(bindings, request_timeout=REQUEST_SECONDS).values():
            answer_of(future)
