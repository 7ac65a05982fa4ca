"""One set of librdkafka properties for every client: as they are for producers, consumers and admin, translated for
aiokafka.

Raw topics are read by Faust's aiokafka consumer, everything else goes through librdkafka, and an operator should have
to write SASL and TLS once. What aiokafka cannot do is refused here with the way out instead of failing at connect
time.
"""

import ssl
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaException, Producer

from susurrus.agents.config.sections import KafkaSettings
from susurrus.agents.logs import SILENT
from susurrus.mechanisms.errors import ConfigurationError

OWNED: Final = {
    "bootstrap.servers": "set kafka.bootstrap_servers instead",
    "group.id": "Susurrus names its own groups",
    "transactional.id": "each partition task has its own, that is what fences zombies",
    "isolation.level": "internal reads are read_committed, or duplicates would reach the outputs",
    "enable.idempotence": "transactions need it on",
    "enable.auto.commit": "offsets are committed inside the transactions only",
    "enable.auto.offset.store": "offsets are committed inside the transactions only",
    "auto.offset.reset": "set start.from instead; a lost position must refuse, never skip",
    "acks": "transactions need all replicas",
    "partitioner": "partitioning is part of the published data; it is fixed by the pipeline",
    "partition.assignment.strategy": "the group's assignor is fixed",
}
"""Properties the pipeline itself decides, with the reason: setting one could break exactly-once, so it is an error."""

_INTEGERS: Final = {
    "session.timeout.ms": "session_timeout_ms",
    "heartbeat.interval.ms": "heartbeat_interval_ms",
    "max.poll.interval.ms": "max_poll_interval_ms",
    "request.timeout.ms": "request_timeout_ms",
    "socket.timeout.ms": "request_timeout_ms",
    "connections.max.idle.ms": "connections_max_idle_ms",
    "metadata.max.age.ms": "metadata_max_age_ms",
    "retry.backoff.ms": "retry_backoff_ms",
    "fetch.wait.max.ms": "fetch_max_wait_ms",
    "fetch.min.bytes": "fetch_min_bytes",
    "fetch.max.bytes": "fetch_max_bytes",
    "max.partition.fetch.bytes": "max_partition_fetch_bytes",
    "fetch.message.max.bytes": "max_partition_fetch_bytes",
}
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI")
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_NOT_FOR_AIOKAFKA: Final = ("ssl.certificate.pem", "ssl.key.pem", "ssl.keystore.location", "ssl.certificate.stores")


def flatten(properties: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted names from nested tables: ``security.protocol = "SSL"`` without quotes is a table in TOML, and is meant
    well."""
    flat: dict[str, Any] = {}
    for name, value in properties.items():
        if isinstance(value, Mapping) and not set(value) <= {"file", "env"}:
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def problems(properties: Mapping[str, Any]) -> list[str]:
    """What is wrong with the properties, one line each; never a value, which may be a password."""
    found = [f'kafka.properties."{name}": leave it out; {OWNED[name]}' for name in properties if name in OWNED]
    protocol = _protocol(properties)
    if protocol not in _PROTOCOLS:
        found.append(f'kafka.properties."security.protocol" = "{protocol}": use one of {", ".join(_PROTOCOLS)}')
    if protocol.startswith("SASL"):
        mechanism = _mechanism(properties)
        if mechanism not in _MECHANISMS:
            found.append(
                f'kafka.properties."sasl.mechanism" = "{mechanism}": use one of {", ".join(_MECHANISMS)}, '
                "or mutual TLS (security.protocol=SSL)"
            )
        elif mechanism != "GSSAPI":
            found += [
                f'kafka.properties."{name}": is missing; {mechanism} needs it'
                for name in ("sasl.username", "sasl.password")
                if name not in properties
            ]
    elif any(name.startswith("sasl.") for name in properties):
        found.append(
            'kafka.properties."security.protocol": is missing; set SASL_SSL (or SASL_PLAINTEXT) for sasl.* to count'
        )
    if protocol.endswith("SSL"):
        found += [
            f'kafka.properties."{name}": not understood by the consumer of the raw topic; '
            "use ssl.ca.location, ssl.certificate.location and ssl.key.location"
            for name in _NOT_FOR_AIOKAFKA
            if name in properties
        ]
    return found or _unknown(properties)


def _unknown(properties: Mapping[str, Any]) -> list[str]:
    """What librdkafka does not know, or not with this value. Files that a property names are not looked at."""
    found = []
    for name, value in properties.items():
        try:
            Producer({name: value}, logger=SILENT)  # without servers: it connects to nothing
        except KafkaException as error:
            text = str(error.args[0].str())
            if text.startswith("No such configuration property"):
                found.append(f'kafka.properties."{name}": librdkafka has no such property; correct its name')
            elif text.startswith(("Invalid value", "Configuration property")) and "needs" not in text:
                found.append(f'kafka.properties."{name}": librdkafka does not take this value; correct it')
    return found


def librdkafka(kafka: KafkaSettings) -> dict[str, Any]:
    """The configuration that every confluent-kafka client starts from."""
    return {"bootstrap.servers": kafka.bootstrap_servers, **kafka.properties}


def aiokafka(kafka: KafkaSettings) -> dict[str, Any]:
    """Keyword arguments that every aiokafka client starts from. Properties that have no counterpart there are left out.

    Raises ConfigurationError when certificate files cannot be loaded.
    """
    properties = kafka.properties
    arguments: dict[str, Any] = {
        "bootstrap_servers": _servers(kafka),
        "security_protocol": (protocol := _protocol(properties)),
    }
    if protocol.endswith("SSL"):
        arguments["ssl_context"] = ssl_context(properties)
    if protocol.startswith("SASL"):
        arguments["sasl_mechanism"] = (mechanism := _mechanism(properties))
        if mechanism == "GSSAPI":
            arguments["sasl_kerberos_service_name"] = properties.get("sasl.kerberos.service.name", "kafka")
        else:
            arguments["sasl_plain_username"] = properties["sasl.username"]
            arguments["sasl_plain_password"] = properties["sasl.password"]
    for name, argument in _INTEGERS.items():
        if name in properties:
            arguments[argument] = int(properties[name])
    for name, argument in (("client.id", "client_id"), ("client.rack", "client_rack")):
        if name in properties:
            arguments[argument] = str(properties[name])
    if kafka.embedded:
        arguments["check_crcs"] = False  # the embedded broker writes commit markers without a checksum
    return arguments


def faust(kafka: KafkaSettings) -> dict[str, Any]:
    """Arguments of ``faust.App`` that say how to reach the cluster: ``broker`` and ``broker_credentials``."""
    return {
        "broker": [f"aiokafka://{server}" for server in _servers(kafka)],
        "broker_credentials": _faust_credentials(kafka.properties),
    }


def _servers(kafka: KafkaSettings) -> list[str]:
    return [server.strip() for server in kafka.bootstrap_servers.split(",")]


def _faust_credentials(properties: Mapping[str, Any]) -> Any:
    """None for plaintext, else one of the classes of ``faust.auth``."""
    protocol = _protocol(properties)
    if protocol == "PLAINTEXT":
        return None
    from faust import auth  # slow to load

    context = ssl_context(properties) if protocol.endswith("SSL") else None
    if protocol == "SSL":
        return auth.SSLCredentials(context)
    mechanism = _mechanism(properties)
    if mechanism == "GSSAPI":
        service = properties.get("sasl.kerberos.service.name", "kafka")
        return auth.GSSAPICredentials(kerberos_service_name=service, ssl_context=context, mechanism=mechanism)
    return auth.SASLCredentials(
        username=properties["sasl.username"],
        password=properties["sasl.password"],
        ssl_context=context,
        mechanism=mechanism,
    )


def ssl_context(properties: Mapping[str, Any]) -> ssl.SSLContext:
    """The TLS context that means what librdkafka's ``ssl.*`` properties mean, with the system's certificates by
    default."""
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
    if not _true(properties.get("enable.ssl.certificate.verification", True)):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif str(properties.get("ssl.endpoint.identification.algorithm", "https")).lower() == "none":
        context.check_hostname = False
    return context


def _protocol(properties: Mapping[str, Any]) -> str:
    return str(properties.get("security.protocol", "PLAINTEXT")).upper()


def _mechanism(properties: Mapping[str, Any]) -> str:
    # librdkafka knows the property by both names and defaults to GSSAPI.
    return str(properties.get("sasl.mechanism", properties.get("sasl.mechanisms", "GSSAPI"))).upper()


def _true(value: Any) -> bool:
    return str(value).lower() not in ("false", "0", "no", "off")
