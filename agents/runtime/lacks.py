"""What is missing when a task fails: a topic, a right, or threads and memory of the machine.

Kafka's errors name neither topic nor right, so it is asked.
An operator can fix all of them without a restart, so the answer is a RetryableRefusal with what is missing and what to do. There is
no answer if Kafka finds nothing missing when asked: a broker that has just come back may refuse a request once.
"""

from collections.abc import Collection, Iterator, Mapping, Set
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient

from susurrus.agents.kafka.access import needed_on_raw_topics, needed_on_topics, word
from susurrus.agents.kafka.requests import REQUEST_SECONDS, answer_of, no_raw_topic, no_topic
from susurrus.agents.runtime.services import Services
from susurrus.mechanisms.errors import RetryableRefusal

NO_ANSWER: Final = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN)
"""Kafka does not answer, so it cannot be asked what is missing."""
_ACCESS: Final = "`susurrus acls` prints the commands"


def lack(error: BaseException | KafkaError, services: Services, task: str) -> RetryableRefusal | None:
    """What the task lacks, or None where the error is of another kind. Raises KafkaException where Kafka does not answer."""
    if _has_no_means(error):
        return RetryableRefusal(
            f"task={task}: the machine gives this worker no more threads or memory for its Kafka clients",
            "raise ulimit -u, pids.max of its control group or its memory, or start more workers; `susurrus "
            "preflight` says what is needed",
        )
    if isinstance(error, KafkaException) and error.args and isinstance(error.args[0], KafkaError):
        error = error.args[0]
    if not isinstance(error, KafkaError):
        return None
    application = services.clients.application
    match error.code():
        case KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            return RetryableRefusal(
                f"transactional.id={application}-{task}: Kafka's user lacks Write or Describe, so nothing can be "
                "committed",
                f"grant both on the transactional ids that begin with {application}- ({_ACCESS})",
            )
        case KafkaError.GROUP_AUTHORIZATION_FAILED:
            return RetryableRefusal(
                f"group={application}: Kafka's user lacks Read, so it cannot get partitions or commit positions",
                f"grant Read and Describe on this group ({_ACCESS})",
            )
        case KafkaError.CLUSTER_AUTHORIZATION_FAILED:
            return RetryableRefusal(
                "cluster: Kafka's user lacks IdempotentWrite, so a record might be written twice",
                f"grant it, or Write on the topics that begin with {application}. ({_ACCESS})",
            )
    if services.clients.embedded or error.code() in NO_ANSWER:
        return None
    # A missing right shows in many errors: records that a failed transaction purged (_PURGE_QUEUE), a commit that counts what
    # was not delivered (_INCONSISTENT), a transaction that cannot be ended because it never began (INVALID_TXN_STATE).
    return next(_of_topics(services), None)


def _has_no_means(error: BaseException | KafkaError) -> bool:
    """Whether a thread or a client could not be made: as Python and librdkafka say it, as far as librdkafka survives it."""
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "start new thread" in str(error)):
        return True
    cause = error.args[0] if isinstance(error, KafkaException) and error.args else error
    return isinstance(cause, KafkaError) and cause.code() == KafkaError._CRIT_SYS_RESOURCE


def describe_topics(
    admin: AdminClient, needed: Mapping[str, Set[AclOperation]], *, seconds: float
) -> tuple[dict[str, Any], list[str], list[tuple[str, str]]]:
    """(what Kafka describes by topic, topics that do not exist, (topic, right) of the rights that are missing).

    Brokers that do not list the rights are believed to have given them. Raises KafkaException for any other answer, or none.
    """
    answers = admin.describe_topics(
        TopicCollection(list(needed)), include_authorized_operations=True, request_timeout=seconds
    )
    found: dict[str, Any] = {}
    missing: list[str] = []
    short: list[tuple[str, str]] = []
    for topic, operations in needed.items():
        try:
            found[topic] = answer_of(answers[topic], seconds)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                missing.append(topic)
            elif error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                short.append((topic, "Describe"))
            else:
                raise
            continue
        if granted := found[topic].authorized_operations:
            short += [(topic, right) for right in sorted(map(word, operations - set(granted)))]
    return found, missing, short


def describe_everywhere(
    admin: AdminClient,
    needed: Mapping[str, Set[AclOperation]],
    raw_admin: AdminClient,
    raw_topics: Collection[str],
    *,
    seconds: float,
) -> tuple[dict[str, Any], list[str], list[tuple[str, str]]]:
    """As `describe_topics`, of the raw topics as well, on their cluster (raw_admin)."""
    of_raw = needed_on_raw_topics(raw_topics)
    if raw_admin is admin:
        return describe_topics(admin, {**needed, **of_raw}, seconds=seconds)
    own, raw = describe_topics(admin, needed, seconds=seconds), describe_topics(raw_admin, of_raw, seconds=seconds)
    return {**own[0], **raw[0]}, own[1] + raw[1], own[2] + raw[2]


def _of_topics(services: Services) -> Iterator[RetryableRefusal]:
    """First the topics that do not exist, then the right that is missing on most."""
    settings = services.settings
    # A task runs on without Delete.
    raw = services.ledger.raw_topics if settings.reads_raw else ()
    needed = {topic: rights - {AclOperation.DELETE} for topic, rights in needed_on_topics(settings).items()}
    _, missing, short = describe_everywhere(
        services.clients.admin(), needed, services.clients.raw.admin(), raw, seconds=REQUEST_SECONDS
    )
    lacking: dict[str, list[str]] = {}
    for topic, right in short:
        lacking.setdefault(right, []).append(topic)
    if gone := next((topic for topic in raw if topic in missing), None):
        found = no_raw_topic(settings, gone)
        yield RetryableRefusal(found.text, found.action)
    elif missing:
        yield no_topic(*missing)
    for right, topics in sorted(lacking.items(), key=lambda item: -len(item[1])):
        yield RetryableRefusal(
            f"topic={', '.join(sorted(topics))}: Kafka's user lacks {right}", f"grant it ({_ACCESS})"
        )
