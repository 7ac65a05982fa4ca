"""One set of librdkafka properties for every client: as they are for producers, consumers and admin, translated for aiokafka.

Faust's aiokafka consumer reads the raw topics, and everything else goes through librdkafka. An operator writes SASL and TLS once.
kafka_checks.py refuses what aiokafka cannot do.
"""

import ssl
from collections.abc import Mapping
from typing import Any, Final

from susurrus.agents.config.sections import KafkaSettings
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
    "enable.ssl.certificate.verification", "ssl.endpoint.identification.algorithm", "client.id", "client.rack", *INTEGERS,
}  # fmt: skip
"""What ``aiokafka`` and ``ssl_context`` below take over."""


def librdkafka(kafka: KafkaSettings) -> dict[str, Any]:
    """The configuration that every confluent-kafka client starts from."""
    return {"bootstrap.servers": kafka.bootstrap_servers, **kafka.properties}


def aiokafka(kafka: KafkaSettings) -> dict[str, Any]:
    """Keyword arguments that every aiokafka client starts from. Properties that have no counterpart there are left out.

    Raises ConfigurationError when certificate files cannot be loaded.
    """
    properties = kafka.properties
    arguments: dict[str, Any] = {
        "bootstrap_servers": [server.strip() for server in kafka.bootstrap_servers.split(",")],
        "security_protocol": (protocol := protocol_of(properties)),
    }
    if protocol.endswith("SSL"):
        arguments["ssl_context"] = ssl_context(properties)
    if protocol.startswith("SASL"):
        arguments["sasl_mechanism"] = (mechanism := mechanism_of(properties))
        if mechanism == "GSSAPI":
            arguments["sasl_kerberos_service_name"] = properties.get("sasl.kerberos.service.name", "kafka")
        else:
            arguments["sasl_plain_username"] = properties["sasl.username"]
            arguments["sasl_plain_password"] = properties["sasl.password"]
    for name, argument in INTEGERS.items():
        if name in properties:
            arguments[argument] = whole(properties[name])
    for name, argument in (("client.id", "client_id"), ("client.rack", "client_rack")):
        if name in properties:
            arguments[argument] = str(properties[name])
    if kafka.embedded:
        arguments["check_crcs"] = False  # the embedded broker writes commit markers without a checksum
    return arguments


def faust(kafka: KafkaSettings) -> dict[str, Any]:
    """Arguments of ``faust.App`` that say how to reach the cluster: ``broker`` and ``broker_credentials``."""
    from faust import auth  # slow to load

    ours = aiokafka(kafka)
    mechanism, context = ours.get("sasl_mechanism"), ours.get("ssl_context")
    credentials: Any = None
    if mechanism == "GSSAPI":
        service = ours["sasl_kerberos_service_name"]
        credentials = auth.GSSAPICredentials(kerberos_service_name=service, ssl_context=context, mechanism=mechanism)
    elif mechanism is not None:
        username, password = ours["sasl_plain_username"], ours["sasl_plain_password"]
        credentials = auth.SASLCredentials(
            username=username, password=password, ssl_context=context, mechanism=mechanism
        )
    elif context is not None:
        credentials = auth.SSLCredentials(context)
    return {
        "broker": [f"aiokafka://{server}" for server in ours["bootstrap_servers"]],
        "broker_credentials": credentials,
    }


def ssl_context(properties: Mapping[str, Any]) -> ssl.SSLContext:
    """The TLS context of librdkafka's ``ssl.*`` properties, with the system's certificates by default.

    Raises ConfigurationError when files cannot be loaded.
    """
    authority = properties.get("ssl.ca.location")
    try:
        context = ssl.create_default_context(
            cafile=None if authority in (None, "probe") else str(authority), cadata=properties.get("ssl.ca.pem")
        )
        if "ssl.certificate.location" in properties:
            context.load_cert_chain(
                str(properties["ssl.certificate.location"]),
                properties.get("ssl.key.location"),
                properties.get("ssl.key.password"),
            )
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"kafka.properties: TLS files cannot be loaded ({error.strerror or type(error).__name__}); "
            "check ssl.ca.location, ssl.certificate.location, ssl.key.location and ssl.key.password"
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
