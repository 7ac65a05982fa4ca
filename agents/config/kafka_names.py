"""The names of librdkafka's properties that are passed on, to suggest the right one for a misspelt one, and to say who follows it.

The other names are in kafka_owned.py. librdkafka prints its list, but confluent-kafka does not offer it. A test compares both, so
that a property of a new librdkafka must be sorted. Whether a name or a value is accepted is always librdkafka's own answer
(kafka_checks.py, agents/kafka/profiles.py), never this list's.
"""

from typing import Final

from susurrus.agents.config.kafka_owned import OWNED, PROGRAMS, WITHOUT_EFFECT


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


EVERY_CLIENT: Final = _names(
    """
    allow.auto.create.topics api.version.request.timeout.ms broker.address.family broker.address.ttl
    client.dns.lookup client.id client.rack connections.max.idle.ms debug enable.metrics.push
    enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification https.ca.location https.ca.pem
    log.connection.close log.thread.name log_level max.in.flight
    max.in.flight.requests.per.connection message.copy.max.bytes message.max.bytes metadata.max.age.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy plugin.library.paths
    receive.message.max.bytes reconnect.backoff.max.ms reconnect.backoff.ms retry.backoff.max.ms retry.backoff.ms
    sasl.kerberos.keytab sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.principal
    sasl.kerberos.service.name sasl.mechanism sasl.mechanisms sasl.oauthbearer.assertion.algorithm
    sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
    sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
    sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
    sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.jwt.template.file
    sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
    sasl.oauthbearer.assertion.private.key.pem sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.client.id sasl.oauthbearer.client.secret
    sasl.oauthbearer.config sasl.oauthbearer.extensions sasl.oauthbearer.grant.type
    sasl.oauthbearer.metadata.authentication.type sasl.oauthbearer.method sasl.oauthbearer.scope
    sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url sasl.password sasl.username
    security.protocol socket.connection.setup.timeout.ms socket.keepalive.enable socket.max.fails
    socket.nagle.disable socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms
    ssl.ca.certificate.stores ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem
    ssl.cipher.suites ssl.crl.location ssl.curves.list ssl.endpoint.identification.algorithm ssl.engine.id
    ssl.engine.location ssl.key.location ssl.key.password ssl.key.pem ssl.keystore.location ssl.keystore.password
    ssl.providers ssl.sigalgs.list topic.metadata.propagation.max.ms topic.metadata.refresh.fast.interval.ms
    topic.metadata.refresh.interval.ms topic.metadata.refresh.sparse
    """
)
"""Properties of all clients that are passed on."""

CONSUMERS: Final = _names(
    """
    check.crcs coordinator.query.interval.ms fetch.error.backoff.ms fetch.max.bytes fetch.message.max.bytes
    fetch.min.bytes fetch.queue.backoff.ms fetch.wait.max.ms heartbeat.interval.ms max.partition.fetch.bytes
    max.poll.interval.ms queued.max.messages.kbytes queued.min.messages session.timeout.ms
    """
)
"""The same of consumers only."""

PRODUCERS: Final = _names(
    """
    batch.num.messages batch.size compression.codec compression.level compression.type delivery.timeout.ms
    linger.ms message.send.max.retries message.timeout.ms queue.buffering.backpressure.threshold
    queue.buffering.max.kbytes queue.buffering.max.messages queue.buffering.max.ms request.timeout.ms retries
    """
)
"""The same of producers only."""

PASSED: Final = EVERY_CLIENT | CONSUMERS | PRODUCERS
KNOWN: Final = PASSED | OWNED.keys() | WITHOUT_EFFECT.keys()
"""What an operator may have meant."""
SORTED: Final = KNOWN | PROGRAMS
"""Every name that librdkafka knows."""

CHOICES: Final = {
    "auto.offset.reset": "smallest, earliest, beginning, largest, latest, end, error",
    "broker.address.family": "any, v4, v6",
    "client.dns.lookup": "use_all_dns_ips, resolve_canonical_bootstrap_servers_only",
    "compression.codec": "none, gzip, snappy, lz4, zstd",
    "compression.type": "none, gzip, snappy, lz4, zstd",
    "group.protocol": "classic, consumer",
    "isolation.level": "read_uncommitted, read_committed",
    "metadata.recovery.strategy": "none, rebootstrap",
    "offset.store.method": "none, file, broker",
    "queuing.strategy": "fifo, lifo",
    "sasl.oauthbearer.assertion.algorithm": "RS256, ES256",
    "sasl.oauthbearer.grant.type": "client_credentials, urn:ietf:params:oauth:grant-type:jwt-bearer",
    "sasl.oauthbearer.metadata.authentication.type": "none, azure_imds, aws_iam",
    "sasl.oauthbearer.method": "default, oidc",
    "security.protocol": "plaintext, ssl, sasl_plaintext, sasl_ssl",
    "ssl.endpoint.identification.algorithm": "none, https",
}
"""What the value of a property may be, where that is one of some words."""

ALIASES: Final = {
    "acks": "request.required.acks",
    "bootstrap.servers": "metadata.broker.list",
    "compression.type": "compression.codec",
    "delivery.timeout.ms": "message.timeout.ms",
    "enable.auto.commit": "auto.commit.enable",
    "linger.ms": "queue.buffering.max.ms",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "retries": "message.send.max.retries",
    "sasl.mechanism": "sasl.mechanisms",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}
"""Second names of properties, and the first ones."""
