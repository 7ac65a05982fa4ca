"""All checks in the order in which an operator would repair them; one that fails does not hide the others."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from susurrus.agents.finding import Finding
from susurrus.agents.kafka.clients_of import clients_of
from susurrus.agents.kafka.raw_topics import raw_topics
from susurrus.agents.operations import compiled, tls
from susurrus.agents.operations.brokers import admin_of, raw_admin_of, reach_brokers
from susurrus.agents.operations.preflight.brokers import check_brokers, check_coordinators
from susurrus.agents.operations.preflight.clock import check_brokers_clock, check_stamps
from susurrus.agents.operations.preflight.machine import (
    check_disk,
    check_files,
    check_secret,
    check_threads,
)
from susurrus.agents.operations.preflight.properties import check_properties, stops
from susurrus.agents.operations.preflight.registries import check_input_registry, check_output_registry
from susurrus.agents.operations.preflight.topics import check_isolation, check_retention, check_topics
from susurrus.agents.operations.rights import rights, topics
from susurrus.agents.operations.status import collect
from susurrus.agents.operations.topic_trial import check_records
from susurrus.agents.runtime.initial_offsets import check_start
from susurrus.agents.runtime.ledger import CHANGE_BACK
from susurrus.agents.runtime.pipeline import Pipeline
from susurrus.mechanisms.errors import ConfigurationError, SusurrusError


def preflight(pipeline: Pipeline[Any]) -> Iterator[Finding]:
    """What each check finds, as soon as it is known. Takes a few seconds."""
    settings = pipeline.settings
    yield from stops(pipeline.format_findings())
    yield from pipeline.promise_findings()
    yield from settings.findings()
    yield from check_secret(pipeline)
    yield from check_disk(pipeline)
    yield compiled.finding()
    found = list(check_properties(pipeline))
    yield from found
    yield from _guarded("input.registry", lambda: check_input_registry(pipeline))
    yield from _guarded("output.registry", lambda: check_output_registry(pipeline))
    if any(one.level == "failure" for one in found):
        return  # no client can ask anything
    errors: list[KafkaError] = []
    admin = admin_of(settings, errors)
    brokers = reach_brokers(settings, admin, errors)
    if isinstance(brokers, Finding):
        yield brokers
        return  # all other answers would come from them
    if settings.reads_raw and (refused := tls.for_the_raw_consumer(settings.kafka)) is not None:
        yield refused
    yield from _guarded("brokers", lambda: check_brokers(pipeline, brokers=brokers))
    raw_admin = raw_admin_of(settings, admin, errors)
    if isinstance(raw_admin, Finding):
        yield raw_admin
        return
    if settings.input.kafka is not None:
        yield Finding("brokers", "ok", f"those of the raw topics, too ({settings.input.kafka.bootstrap_servers})")
    partitions = _partitions(pipeline, admin, raw_admin)
    if not isinstance(partitions, int):
        yield from partitions
    yield from _guarded("rights", lambda: _check_rights(pipeline, admin, topics_too=isinstance(partitions, int)))
    # The checks above have made the brokers create these two on a new cluster.
    yield from _guarded("brokers", lambda: check_coordinators(pipeline, admin))
    yield from _guarded("clock", lambda: check_brokers_clock(pipeline, admin))
    if not isinstance(partitions, int):
        return  # what follows asks for these topics
    try:
        with contextlib.closing(clients_of(settings, quiet=True)) as clients:
            raw = raw_topics(settings, clients) if settings.reads_raw else ()
    except SusurrusError as error:  # a pattern matches nothing
        yield Finding.of(error, "topic")
        return
    checks: dict[str, Callable[[], Iterator[Finding]]] = {
        "topic": lambda: check_topics(pipeline, admin, raw, raw_admin),
        "retention": lambda: check_retention(pipeline, raw_admin, raw),
        "isolation": lambda: check_isolation(raw_admin, raw),
        "time stamps": lambda: check_stamps(raw_admin, raw),
        "records": lambda: _check_records(pipeline, raw),
        "open files": lambda: check_files(pipeline, partitions=partitions, brokers=brokers),
        "threads": lambda: check_threads(pipeline, partitions=partitions, brokers=brokers),
        "epoch": lambda: _check_epoch(pipeline),
    }
    for subject, check in checks.items():
        yield from _guarded(subject, check)


def _partitions(pipeline: Pipeline[Any], admin: AdminClient, raw_admin: AdminClient) -> int | list[Finding]:
    """How many partitions the stages have together; or which topics, or rights on them, are missing."""
    try:
        return topics(pipeline, admin, raw_admin)
    except KafkaException as error:
        return [Finding("topics", "unknown", error.args[0].name(), "see to the brokers, then try again")]


def _guarded(subject: str, check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    try:
        yield from check()
    except SusurrusError as error:
        yield Finding.of(error, subject)
    except KafkaException as error:
        yield Finding(subject, "unknown", error.args[0].name(), "see to the rights or to the brokers, then try again")


def _check_rights(pipeline: Pipeline[Any], admin: AdminClient, *, topics_too: bool) -> Iterator[Finding]:
    """The rights that belong to no topic. topics_too: those on topics are there."""
    missing = rights(pipeline.settings, admin)
    yield from missing
    if not missing and topics_too:
        yield Finding("rights", "ok", "all that a worker needs")


def _check_records(pipeline: Pipeline[Any], raw: Sequence[str]) -> Iterator[Finding]:
    """What would become of the newest records."""
    try:
        yield from check_records(pipeline, raw or None)
    except ConfigurationError as error:  # a package that workers may have: packages are looked at by themselves
        yield Finding("records", "unknown", error.text, error.action)


def _check_epoch(pipeline: Pipeline[Any]) -> Iterator[Finding]:
    """Has the pipeline begun, and with this configuration?"""
    found = collect(pipeline)
    if found.changed:
        yield Finding(
            "epoch",
            "failure",
            f"the pipeline runs with other values of {', '.join(found.changed)}",
            CHANGE_BACK,
        )
    elif found.epoch:
        yield Finding("epoch", "ok", f"epoch {found.epoch_number} runs with it")
    else:
        clients = clients_of(pipeline.settings, quiet=True)
        try:
            check_start(
                pipeline.settings, clients, raw_topics(pipeline.settings, clients)
            )  # what a worker would refuse before it begins
        finally:
            clients.close()
        yield Finding("epoch", "ok", "not begun yet")
    if not found.changed and (sentences := pipeline.memory_sentences(found.newest)):
        yield Finding("memory", "ok", " ".join(sentences))
