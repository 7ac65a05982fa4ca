"""One set of librdkafka properties for every client: as they are for producers, consumers and admin, translated for aiokafka.

Faust's aiokafka consumer reads the topics of the stages, and everything else goes through librdkafka. An operator writes SASL and
TLS once. agents/runtime/faust/connection.py translates; kafka_checks.py refuses what aiokafka cannot do.
"""

import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from susurrus.agents.config import kafka_certificates, kafka_tokens
from susurrus.agents.config.kafka_tokens import OAUTHBEARER
from susurrus.agents.config.sections import ClusterSettings
from susurrus.mechanisms.errors import ConfigurationError

INTEGERS: Final = {
    "socket.timeout.ms": "request_timeout_ms",
    "fetch.wait.max.ms": "fetch_max_wait_ms",
    "fetch.message.max.bytes": "max_partition_fetch_bytes",
} | {
    name: name.replace(".", "_")
    for name in (
        "session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms", "request.timeout.ms", "connections.max.idle.ms",
        "metadata.max.age.ms", "retry.backoff.ms", "fetch.min.bytes", "fetch.max.bytes", "max.partition.fetch.bytes",
    )
}  # fmt: skip
"""aiokafka's arguments that are whole numbers, by librdkafka's names."""
TRANSLATED: Final = {
    "security.protocol", "sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password", "sasl.kerberos.service.name",
    "ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.key.location", "ssl.key.password",
    "ssl.certificate.pem", "ssl.key.pem", "ssl.keystore.location", "ssl.keystore.password", "ssl.crl.location",
    "ssl.cipher.suites", "enable.ssl.certificate.verification", "ssl.endpoint.identification.algorithm", "client.id",
    "client.rack", *kafka_tokens.PROPERTIES, *INTEGERS,
}  # fmt: skip
"""What ``ssl_context`` below and agents/runtime/faust/connection.py take over."""


_FILES: Final = (
    "ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.certificate.pem", "ssl.key.location", "ssl.key.pem",
    "ssl.key.password", "ssl.keystore.location", "ssl.keystore.password", "ssl.crl.location", "ssl.cipher.suites",
)  # fmt: skip


def librdkafka(kafka: ClusterSettings) -> dict[str, Any]:
    """The configuration that every confluent-kafka client starts from. Asks for a token, where one is needed: see `with_token`."""
    with _section_named(kafka):
        return with_token({"bootstrap.servers": kafka.bootstrap_servers, **kafka.properties})


@contextmanager
def _section_named(kafka: ClusterSettings) -> Iterator[None]:
    """Let a ConfigurationError name the section of this cluster."""
    try:
        yield
    except ConfigurationError as error:
        raise type(error)(kafka.named(error.text), kafka.named(error.action)) from None


def with_token(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Properties (with bootstrap.servers) for a client that connects. Those of OAUTHBEARER become a callback for the token.

    A first token is asked for here: a client's constructor would wait for it, and not say why there is none. Raises
    ConfigurationError, and TokenAway where it may pass.
    """
    if (source := token_source(properties)) is None:
        return dict(properties)
    source.token()
    return {**offline(properties), "oauth_cb": source.for_librdkafka}


def offline(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Properties for a client that only shows whether it can be made: nobody is asked for a token."""
    if token_source(properties) is None:
        return dict(properties)
    rest = {
        name: value
        for name, value in properties.items()
        if name not in kafka_tokens.PROPERTIES and name not in ("sasl.mechanism", "sasl.mechanisms")
    }
    return {**rest, "sasl.mechanism": OAUTHBEARER}


def token_source(properties: Mapping[str, Any]) -> kafka_tokens.TokenSource | None:
    """Where the tokens of these properties (with bootstrap.servers) come from; None where they need none."""
    mechanism = mechanism_of(properties)
    if not protocol_of(properties).startswith("SASL") or mechanism not in kafka_tokens.MECHANISMS:
        return None
    return kafka_tokens.source_of(mechanism, properties)


def tls_context(kafka: ClusterSettings) -> ssl.SSLContext | None:
    """The TLS context of a cluster's clients, None where TLS is not asked for.

    Raises ConfigurationError, which names the cluster's section, when files cannot be loaded.
    """
    if not protocol_of(kafka.properties).endswith("SSL"):
        return None
    with _section_named(kafka):
        return ssl_context(kafka.properties)


def ssl_context(properties: Mapping[str, Any]) -> ssl.SSLContext:
    """The TLS context of librdkafka's ``ssl.*`` properties, with the system's certificates by default.

    Raises ConfigurationError when files cannot be loaded.
    """
    authority = properties.get("ssl.ca.location")
    try:
        context = ssl.create_default_context(
            cafile=None if authority in (None, "probe") else str(authority), cadata=properties.get("ssl.ca.pem")
        )
        kafka_certificates.add_to(context, properties)
        if (revoked := properties.get("ssl.crl.location")) is not None:
            context.load_verify_locations(str(revoked))
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        if (suites := properties.get("ssl.cipher.suites")) is not None:
            context.set_ciphers(str(suites))
    except (OSError, ValueError, TypeError) as error:
        given = [name for name in _FILES if name in properties]
        raise ConfigurationError(
            f"kafka.properties: TLS files cannot be loaded ({getattr(error, 'strerror', None) or type(error).__name__})",
            f"check {', '.join(given) or 'the authorities of this system'}",
        ) from None
    # Python 3.13's default refuses authorities that librdkafka takes, such as companies' own without an Authority Key Identifier.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not is_true(properties.get("enable.ssl.certificate.verification", True)):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif str(properties.get("ssl.endpoint.identification.algorithm", "https")).lower() == "none":
        context.check_hostname = False
    return context


def protocol_of(properties: Mapping[str, Any]) -> str:
    """The security protocol, in capitals."""
    return str(properties.get("security.protocol", "PLAINTEXT")).upper()


def mechanism_of(properties: Mapping[str, Any]) -> str:
    """The SASL mechanism, in capitals."""
    # librdkafka knows the property by both names and defaults to GSSAPI.
    return str(properties.get("sasl.mechanism", properties.get("sasl.mechanisms", "GSSAPI"))).upper()


def whole(value: Any) -> int | None:
    """The whole number that a value is, or None. Variables and files hold texts."""
    try:
        return None if isinstance(value, bool | float) else int(value)
    except ValueError:
        return None


def is_true(value: Any) -> bool:
    """Whether a property is on, as librdkafka reads it."""
    return str(value).lower() not in ("false", "0", "no", "off")
