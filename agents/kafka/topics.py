"""Creates and checks a pipeline's topics from their contracts in topics/spec.py.

Internal topics have unlimited retention, and the workers purge them below the committed position. Changelogs must
not lose a record to an unclean election. Creating never changes a topic that exists, except that partitions which
follow a grown raw topic are added.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ClusterMetadata,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicMetadata,
)

from susurrus.agents.config.settings import Settings
from susurrus.agents.finding import Finding, error_of
from susurrus.agents.kafka.raw_topics import visible
from susurrus.agents.kafka.requests import REQUEST_SECONDS, answer_of, no_raw_topic, settings_of
from susurrus.topics.spec import LEDGER, TopicSpec

_MAX_RECORD_BYTES = 1_048_588
_SEGMENT_BYTES: Final = 16 << 20
"""The size of the ledger's segments. The newest segment is never compacted, and every worker reads it when it starts."""
_AT_LEAST: Final = ("min.insync.replicas", "max.message.bytes")
"""Settings of which more is fine."""
_CREATE: Final = "run `susurrus topics create`"
_SET: Final = "correct settings with kafka-configs.sh, and the number of partitions with `susurrus topics create`"
_MOVE: Final = "add replicas with kafka-reassign-partitions.sh, or correct topics.replication_factor"


def partitions_of(settings: Settings, spec: TopicSpec, raw: int) -> int:
    """How many partitions the configuration gives a topic. raw: how many the raw topic has."""
    by_user, bounded = settings.topics.by_user_partitions, settings.topics.bounded_partitions
    return {"raw": raw, "by-user": by_user, "bounded": bounded}.get(spec.partitions, 1)


def _config(settings: Settings, spec: TopicSpec, replication: int) -> dict[str, str]:
    config = {
        "cleanup.policy": spec.cleanup,
        "min.insync.replicas": str(min(settings.topics.min_insync_replicas, replication)),
        "unclean.leader.election.enable": "false",
        "max.message.bytes": str(_MAX_RECORD_BYTES),
    }
    if spec.retention == "forever":
        config["retention.ms"] = "-1"
    elif spec.readers == "public":
        # Rows carry their trigger's time. With the broker's default, rows of an archive would be deleted on arrival.
        retention = settings.topics.retention
        config["retention.ms"] = "-1" if retention is None else str(retention)
    if spec.readers == "public":
        # Output time stamps are trigger times, which consumers rely on.
        config["message.timestamp.type"] = "CreateTime"
        # The default is an hour. An archive's triggers, or a stream's stamps, may lie further ahead.
        config["message.timestamp.after.max.ms"] = str(2**63 - 1)
    return config


def _charges_config(settings: Settings, replication: int) -> dict[str, str]:
    """The properties of the topic that all pipelines of the cluster share."""
    config = {"cleanup.policy": "compact", "retention.ms": "-1", "unclean.leader.election.enable": "false"}
    return {**config, "min.insync.replicas": str(min(settings.topics.min_insync_replicas, replication))}


def _of_raw_topics(
    settings: Settings, metadata: ClusterMetadata, raw_topics: Sequence[str] | None, raw_admin: AdminClient | None
) -> tuple[Sequence[str], int]:
    """The raw topics, and how many partitions all of them have. metadata: of the pipeline's cluster."""
    there = metadata if raw_admin is None else raw_admin.list_topics(timeout=REQUEST_SECONDS)
    raw_topics = visible(settings, there.topics) if raw_topics is None else raw_topics
    return raw_topics, _raw_partitions(settings, there.topics, raw_topics)


def _raw_partitions(settings: Settings, topics: Mapping[str, TopicMetadata], raw_topics: Sequence[str]) -> int:
    """How many partitions all raw topics have. topics: all of their cluster, because asking for one would create it where the
    broker creates topics by itself."""
    if not settings.reads_raw:
        return settings.topics.by_user_partitions  # its input, the reports, is a topic of its own
    for topic in raw_topics:
        if topic not in topics or topics[topic].error is not None:
            raise error_of([no_raw_topic(settings, topic)])
    return sum(len(topics[topic].partitions) for topic in raw_topics)


def _replicas(settings: Settings, brokers: int) -> int:
    """The number of replicas of every topic: as configured, or as many as there are brokers."""
    return min(settings.topics.replication_factor, brokers)


def few_brokers(settings: Settings, brokers: int) -> Finding | None:
    """What follows where the cluster has fewer brokers than topics should have replicas; None where it has enough.

    The pipeline runs all the same.
    """
    if (replicas := _replicas(settings, brokers)) == settings.topics.replication_factor:
        return None
    return Finding(
        "brokers",
        "warning",
        f"{brokers} broker{'' if brokers == 1 else 's'}, so topics have replication {replicas} instead of "
        f"{settings.topics.replication_factor} (topics.replication_factor): a lost disk loses the pipeline's state",
        "add brokers, or set the lower number if this is a trial",
    )


def _raw_misfits(settings: Settings, admin: AdminClient, topic: str) -> Iterator[Finding]:
    """Why no worker would begin on a raw topic; nothing without the right to ask."""
    try:
        found = settings_of(admin, topic)
    except KafkaException:
        return  # the worker asks again
    for misfit in settings.raw_topic_findings(topic, found):
        yield replace(misfit, text=f"{topic} has {misfit.text}, and no worker begins on it")


def create_topics(
    settings: Settings,
    admin: AdminClient,
    raw_topics: Sequence[str] | None = None,
    raw_admin: AdminClient | None = None,
) -> list[str]:
    """Create what is missing; one line per topic for the operator, and warnings. Raises ConfigurationError where a raw topic is
    missing. raw_topics: by default those that the settings name, or whose names match now. raw_admin: of their cluster; by default
    it is the same.
    """
    metadata = admin.list_topics(timeout=REQUEST_SECONDS)
    there = admin if raw_admin is None else raw_admin
    raw_topics, raw = _of_raw_topics(settings, metadata, raw_topics, raw_admin)
    replication = _replicas(settings, len(metadata.brokers))
    few = few_brokers(settings, len(metadata.brokers))
    found = [] if few is None else [few]
    if settings.reads_raw:
        found += [misfit for topic in raw_topics for misfit in _raw_misfits(settings, there, topic)]
    found += settings.start_findings(int(time.time() * 1000))
    lines = [f"warning: {finding}" for finding in found]
    wanted = {settings.topic(spec.name): spec for spec in settings.topic_specs}
    missing = []
    for name, spec in wanted.items():
        existing = metadata.topics.get(name)
        partitions = partitions_of(settings, spec, raw)
        if existing is None:
            config = _config(settings, spec, replication)
            if spec is LEDGER:
                config["segment.bytes"] = str(_SEGMENT_BYTES)  # for speed only, so it is not checked
            missing.append(NewTopic(name, partitions, replication, config=config))
        elif len(existing.partitions) < partitions and spec.partitions == "raw":
            _wait(admin.create_partitions([NewPartitions(name, partitions)]))
            lines.append(f"grown    {name} to {partitions} partitions")
        else:
            lines.append(f"exists   {name}")
    shared = settings.topics.charges
    if shared not in metadata.topics:
        missing.append(NewTopic(shared, 1, replication, config=_charges_config(settings, replication)))
    else:
        lines.append(f"exists   {shared}")
    if missing:
        _wait(admin.create_topics(missing, operation_timeout=REQUEST_SECONDS))
        _wait_for_leaders(admin, {topic.topic: topic.num_partitions for topic in missing})
        lines += [f"created  {topic.topic} with {topic.num_partitions} partition(s)" for topic in missing]
    return lines


def _wait(futures: dict[str, Any]) -> None:
    for future in futures.values():
        try:
            answer_of(future)
        except KafkaException as error:
            # Two operators at once: the first one has made the same topic.
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def _wait_for_leaders(admin: AdminClient, partitions: dict[str, int]) -> None:
    """The controller answers before the brokers know their new partitions; a worker would meet NOT_LEADER."""
    deadline = time.monotonic() + REQUEST_SECONDS
    while time.monotonic() < deadline:
        topics = admin.list_topics(timeout=REQUEST_SECONDS).topics
        specs = {
            TopicPartition(name, partition): OffsetSpec.latest()
            for name, number in partitions.items()
            if name in topics and sum(p.leader >= 0 for p in topics[name].partitions.values()) == number
            for partition in range(number)
        }
        if len(specs) == sum(partitions.values()):
            futures = admin.list_offsets(specs, request_timeout=REQUEST_SECONDS).values()
            with contextlib.suppress(KafkaException):
                if all(answer_of(future).offset >= 0 for future in futures):
                    return
        time.sleep(0.05)


def check_topics(
    settings: Settings,
    admin: AdminClient,
    raw_topics: Sequence[str] | None = None,
    raw_admin: AdminClient | None = None,
) -> list[Finding]:
    """One finding for each of the pipeline's own topics, and for the one with the charges, which all pipelines of the cluster
    share.

    Its subject is the topic. It is a warning where nothing but replicas are missing, for a worker runs with that. Topics are judged
    by what `create_topics` would make on this cluster now. The shared topic was made for another pipeline, perhaps.

    raw_topics, raw_admin: as there.
    """
    metadata = admin.list_topics(timeout=REQUEST_SECONDS)
    _, raw = _of_raw_topics(settings, metadata, raw_topics, raw_admin)
    shared = settings.topics.charges
    wanted = {settings.topic(spec.name): spec for spec in settings.topic_specs}
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in (shared, *wanted) if name in metadata.topics]
    asked = admin.describe_configs(resources, request_timeout=REQUEST_SECONDS) if resources else {}
    configs = {
        resource.name: {name: entry.value for name, entry in answer_of(future).items()}
        for resource, future in asked.items()
    }
    replicas = _replicas(settings, len(metadata.brokers))

    def check(name: str, partitions: int, may_grow: bool, expected: Callable[[int], dict[str, str]]) -> Finding:
        if name not in metadata.topics:
            return Finding(name, "failure", "is missing", _CREATE)
        found = metadata.topics[name].partitions
        problems = []
        if len(found) < partitions or (len(found) != partitions and not may_grow):
            problems.append(f"has {len(found)} partitions, needs {partitions}")
        replication = min((len(partition.replicas) for partition in found.values()), default=0)
        problems += _differences(configs[name], expected(replication))
        runs = not problems
        if replication < replicas:
            problems.append(f"replication is {replication}, configured {settings.topics.replication_factor}")
        if problems:
            return Finding(name, "warning" if runs else "failure", "; ".join(problems), _MOVE if runs else _SET)
        return Finding(name, "ok", "")

    checks = [check(shared, 1, False, partial(_charges_config, settings))]
    if (before := f"{settings.pipeline.prefix}.charges") in metadata.topics and before != shared:
        text = f"is a log of charges, too: there was one for each prefix before, and this pipeline counts those of {shared}"
        action = (
            f'set topics.charges = "{before}" for all pipelines to go on with it, or delete it if nothing was charged'
        )
        checks.append(Finding(before, "warning", text, action))
    for name, spec in wanted.items():
        partitions = partitions_of(settings, spec, raw)
        checks.append(check(name, partitions, spec.partitions == "raw", partial(_config, settings, spec)))
    return checks


def _differences(found: Mapping[str, str], expected: Mapping[str, str]) -> Iterator[str]:
    """What of a topic's settings is not as it was created."""
    for key, value in expected.items():
        if key in _AT_LEAST:
            if int(found[key]) < int(value):
                yield f"{key}={found[key]}, should be {value}"
        elif set(found.get(key, "").split(",")) != set(value.split(",")):
            yield f"{key}={found.get(key)}, should be {value}"
