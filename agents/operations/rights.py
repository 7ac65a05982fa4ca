"""Whether the topics exist, and whether this user has the rights that a worker needs; a missing one comes with its command.

Rights come from the brokers' metadata, which lists the operations that this principal may do. Where brokers list none, no right
counts as missing. Nothing is written except one entry of the transaction coordinator, under an id that no task has.
"""

import logging
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient, OffsetSpec

from susurrus.agents.config.kafka_properties import librdkafka
from susurrus.agents.config.settings import Settings
from susurrus.agents.finding import Finding
from susurrus.agents.kafka.access import Right, needed_on_topics, right_on
from susurrus.agents.kafka.raw_topics import matching
from susurrus.agents.kafka.requests import answer_of, group_of, is_fenced, no_raw_topic
from susurrus.agents.logs import SILENT
from susurrus.agents.runtime.lacks import describe_everywhere
from susurrus.agents.runtime.pipeline import Pipeline

log = logging.getLogger(__name__)

_ANSWER_SECONDS: Final = 10.0
_CREATE: Final = "run `susurrus topics create --config ...`"


def topics(pipeline: Pipeline[Any], admin: AdminClient, raw_admin: AdminClient) -> list[Finding] | int:
    """The number of partitions to run, if every topic exists and gives the rights that a worker needs; else what is missing.

    raw_admin: of the cluster with the raw topics, which may be the same.
    """
    settings = pipeline.settings
    raw = _raw_topics(settings, raw_admin)
    found, missing, short = describe_everywhere(
        admin, needed_on_topics(settings), raw_admin, raw, seconds=_ANSWER_SECONDS
    )
    if short:
        return list(_on_topics(settings, short, raw))
    if absent := [topic for topic in raw if topic in missing]:
        return [no_raw_topic(settings, absent[0])]
    if missing and _has_begun(settings, admin, missing):
        log.warning("topics that this pipeline had are gone: %s; their tasks say what to do", ", ".join(missing))
    elif missing:
        some = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        text = f'pipeline.name="{settings.pipeline.name}": its topics do not exist yet ({some})'
        return [Finding("topics", "failure", text, _CREATE, waits=True)]
    return sum(
        len(found[topic].partitions) for stage in pipeline.stages for topic in stage.inputs(raw) if topic in found
    )


def _raw_topics(settings: Settings, admin: AdminClient) -> tuple[str, ...]:
    """The raw topics that can be seen. A pattern that matches none yet is said by the worker, which needs one to begin."""
    if not settings.reads_raw:
        return ()
    return settings.input.listed or matching(settings, admin.list_topics(timeout=_ANSWER_SECONDS).topics)


def _has_begun(settings: Settings, admin: AdminClient, missing: list[str]) -> bool:
    """Whether the pipeline has run before. If so, a missing topic is a loss, and each task refuses it."""
    ledger = settings.topic("ledger")
    if ledger in missing:
        return False
    place = TopicPartition(ledger, 0)
    asked = admin.list_offsets({place: OffsetSpec.latest()}, request_timeout=_ANSWER_SECONDS)
    end = answer_of(asked[place], _ANSWER_SECONDS)
    return bool(end.offset > 0)


def rights(settings: Settings, admin: AdminClient) -> list[Finding]:
    """The missing rights that belong to no topic: those on the group and on transactions."""
    group, right = settings.application, ""
    try:
        found = group_of(admin, group, seconds=_ANSWER_SECONDS, rights=True)
        if found is not None and found.authorized_operations and AclOperation.READ not in found.authorized_operations:
            right = "Read"
    except KafkaException as error:
        if error.args[0].code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
            raise
        right = "Describe"
    own = [missing_right(settings, right, f'group="{group}"', right_on(settings, "group", group))] if right else []
    return own + transactions(settings, group)


def transactions(settings: Settings, application: str) -> list[Finding]:
    """What is missing for transactions. Begins none, and fences only the probe of another worker, which then has its answer."""
    producer = Producer(
        {
            **librdkafka(settings.kafka),
            "transactional.id": f"{application}-probe",
            "transaction.timeout.ms": settings.worker.transaction_timeout,
            "error_cb": lambda error: None,
        },
        logger=SILENT,
    )
    try:
        producer.init_transactions(_ANSWER_SECONDS)
    except KafkaException as error:
        code = error.args[0].code()
        if code == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            named = f'transactional-id="{application}-..."'
            gives = right_on(settings, "transactional-id", f"{application}-probe")
            return [missing_right(settings, "Write", named, gives)]
        if code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            text = (
                f"worker.transaction_timeout={settings.worker.transaction_timeout} ms: more than the brokers allow "
                "(transaction.max.timeout.ms)"
            )
            return [Finding("rights", "failure", text, "lower it, or raise theirs")]
        if not is_fenced(error.args[0]):
            raise
    return []


def _on_topics(settings: Settings, short: list[tuple[str, str]], raw: Sequence[str]) -> Iterator[Finding]:
    for topic in raw:
        if rights := " and ".join(right for name, right in short if name == topic):
            named = f'input.topic="{topic}" (if there is such a topic)'
            yield missing_right(settings, rights, named, right_on(settings, "topic", topic))
    own: dict[Right, list[tuple[str, str]]] = {}
    for name, right in short:
        if name not in raw:
            own.setdefault(right_on(settings, "topic", name), []).append((name, right))
    for gives, lacking in own.items():
        name, right = lacking[0]
        more = f" (and {len(lacking) - 1} more)" if len(lacking) > 1 else ""
        yield missing_right(settings, right, f'topic="{name}"{more}', gives)


def missing_right(settings: Settings, right: str, on: str, gives: Right) -> Finding:
    """What is missing, and the command that gives it."""
    user = gives.cluster(settings).properties.get("sasl.username")
    principal = shlex.quote(f"User:{user}") if user is not None else '"User:<the worker\'s principal>"'
    command = gives.command(settings, principal)
    return Finding("rights", "failure", f"the right {right} on {on} is missing", f"give it:\n    {command}")
