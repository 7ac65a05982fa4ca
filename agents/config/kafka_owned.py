"""librdkafka's properties that are not passed on: the pipeline sets them, they have no effect here, or they belong to programs.

kafka_names.py lists those that are.
"""

from typing import Final

_OFFSETS: Final = "offsets are committed inside the transactions only"
_GROUP: Final = "all members of a group need the same, and the consumer of the raw topic joins a classic group"
_SHARED: Final = "it is for share consumers, and none of the clients is one"
_NO_USE: Final = "librdkafka no longer uses it"
_OLD_BROKERS: Final = "it is for brokers before 0.10, and transactions need later ones"

OWNED: Final = {
    "bootstrap.servers": "set kafka.bootstrap_servers instead",
    "metadata.broker.list": "set kafka.bootstrap_servers instead",
    "topic.blacklist": "a topic that it hides would be taken for missing",
    "group.id": "Susurrus names its own groups",
    "group.instance.id": "set worker.instance instead, in the environment of each worker",
    "group.protocol": _GROUP,
    "group.protocol.type": _GROUP,
    "group.remote.assignor": _GROUP,
    "partition.assignment.strategy": "the group's assignor is fixed",
    "transactional.id": "each partition task has its own, which fences zombies",
    "transaction.timeout.ms": "set worker.transaction_timeout instead",
    "isolation.level": "internal reads are read_committed, or duplicates would reach the outputs",
    "enable.idempotence": "transactions need it on",
    "enable.gapless.guarantee": "a transaction leaves no gap",
    "queuing.strategy": "transactions need the order in which records were written",
    "enable.auto.commit": _OFFSETS,
    "auto.commit.enable": _OFFSETS,
    "auto.commit.interval.ms": _OFFSETS,
    "enable.auto.offset.store": _OFFSETS,
    "offset.store.method": _OFFSETS,
    "offset.store.path": _OFFSETS,
    "offset.store.sync.interval.ms": _OFFSETS,
    "enable.partition.eof": "readers must learn where a partition ends",
    "auto.offset.reset": "set start.from instead; a lost position must refuse, never skip",
    "acks": "transactions need all replicas",
    "request.required.acks": "transactions need all replicas",
    "delivery.report.only.error": "every delivery is counted",
    "logger": "clients write to the worker's log",
    "log.queue": "clients write to the worker's log",
    "partitioner": "partitioning is part of the published data; it is fixed by the pipeline",
}
"""Properties that the pipeline itself sets, with the reason: another value could break exactly-once, so each is an error."""

WITHOUT_EFFECT: Final = {
    "api.version.fallback.ms": _OLD_BROKERS,
    "api.version.request": _OLD_BROKERS,
    "broker.version.fallback": _OLD_BROKERS,
    "builtin.features": "it says what librdkafka can do, and sets nothing",
    "consume.callback.max.messages": "no client consumes by callbacks",
    "enable.random.seed": "nothing that is published depends on it",
    "max.poll.records": _SHARED,
    "metadata.request.timeout.ms": _NO_USE,
    "produce.offset.report": _NO_USE,
    "reconnect.backoff.jitter.ms": _NO_USE,
    "share.acknowledgement.mode": _SHARED,
    "socket.blocking.max.ms": _NO_USE,
    "statistics.interval.ms": "nobody reads these statistics; workers have metrics of their own",
    "sticky.partitioning.linger.ms": "every record names its partition",
    "topic.metadata.refresh.fast.cnt": _NO_USE,
}
"""Properties that change nothing here, with the reason: each gets a warning."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


PROGRAMS: Final = _names(
    """
    background_event_cb client.software.name client.software.version closesocket_cb connect_cb consume_cb
    default_topic_conf dr_cb dr_msg_cb enable.sparse.connections enable_sasl_queue enabled_events error_cb interceptors
    internal.termination.signal log_cb msg_order_cmp oauthbearer_token_refresh_cb offset_commit_cb opaque open_cb
    partitioner_cb rebalance_cb resolve_cb socket_cb ssl.certificate.verify_cb ssl_ca ssl_certificate
    ssl_engine_callback_data ssl_key stats_cb test.mock.broker.rtt test.mock.num.brokers throttle_cb
    ut_handle_ProduceResponse
    """
)
"""Properties for programs that use librdkafka, and for its own tests: functions, pointers, brokers that are not real. Each is an
error."""

_CERTIFICATES: Final = "is for Java; write the authority's certificate as PEM, and name it in ssl.ca.location"
_KEYS: Final = "is for Java; give certificate and key as PEM (ssl.certificate.location, ssl.key.location)"
_LOGIN: Final = "is for Java; write sasl.username and sasl.password"

JAVA: Final = {
    "key.deserializer": "is for Java; leave it out",
    "key.serializer": "is for Java; leave it out",
    "sasl.client.callback.handler.class": _LOGIN,
    "sasl.jaas.config": _LOGIN,
    "sasl.login.callback.handler.class": _LOGIN,
    "ssl.keystore.type": _KEYS,
    "ssl.truststore.certificates": _CERTIFICATES,
    "ssl.truststore.location": _CERTIFICATES,
    "ssl.truststore.password": _CERTIFICATES,
    "ssl.truststore.type": _CERTIFICATES,
    "value.deserializer": "is for Java; leave it out",
    "value.serializer": "is for Java; leave it out",
}
"""Properties of Java's clients that librdkafka lacks, and what to write instead."""
