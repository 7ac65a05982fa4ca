"""One set of librdkafka properties for every client: as they are for producers, consumers and admin, translated for aiokafka.

Faust's aiokafka consumer reads the raw topics, and everything else goes through librdkafka. An operator writes SASL and TLS once.
What aiokafka cannot do is refused here, with the fix, instead of failing when a client connects.
"""

import ssl
from collections.abc import Iterator, Mapping
from typing import Any, Final

from confluent_kafka import KafkaException, Producer

from susurrus.agents.config.sections import KafkaSettings
from susurrus.agents.logs import SILENT
from susurrus.mechanisms.errors import ConfigurationError

OWNED: Final = {
    "bootstrap.servers": "set kafka.bootstrap_servers instead",
    "group.id": "Susurrus names its own groups",
    "group.instance.id": "set worker.instance instead, in the environment of each worker",
    "transactional.id": "each partition task has its own, which fences zombies",
    "isolation.level": "internal reads are read_committed, or duplicates would reach the outputs",
    "enable.idempotence": "transactions need it on",
    "enable.auto.commit": "offsets are committed inside the transactions only",
    "enable.auto.offset.store": "offsets are committed inside the transactions only",
    "auto.offset.reset": "set start.from instead; a lost position must refuse, never skip",
    "acks": "transactions need all replicas",
    "partitioner": "partitioning is part of the published data; it is fixed by the pipeline",
    "partition.assignment.strategy": "the group's assignor is fixed",
}
"""Properties that the pipeline itself sets, with the reason: another value could break exactly-once, so each is an error."""

_INTEGERS: Final = {
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
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI")
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_NOT_FOR_AIOKAFKA: Final = ("ssl.certificate.pem", "ssl.key.pem", "ssl.keystore.location", "ssl.certificate.stores")


def problems(properties: Mapping[str, Any]) -> list[str]:
    """What is wrong with the properties, one line each; never a value, which may be a password."""
    return [f'kafka.properties."{name}"{problem}' for name, problem in _refused(properties)] or _unknown(properties)


def _refused(properties: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Names of properties, and what we refuse about them."""
    protocol, mechanism = _protocol(properties), _mechanism(properties)
    for name in properties:
        if name in OWNED:
            yield name, f": leave it out; {OWNED[name]}"
    if protocol not in _PROTOCOLS:
        yield "security.protocol", f' = "{protocol}": use one of {", ".join(_PROTOCOLS)}'
    if not protocol.startswith("SASL"):
        if any(name.startswith("sasl.") for name in properties):
            yield "security.protocol", ": is missing; set SASL_SSL (or SASL_PLAINTEXT) for sasl.* to count"
    elif mechanism not in _MECHANISMS:
        use = f"use one of {', '.join(_MECHANISMS)}, or mutual TLS (security.protocol=SSL)"
        yield "sasl.mechanism", f' = "{mechanism}": {use}'
    elif mechanism != "GSSAPI":
        for name in ("sasl.username", "sasl.password"):
            if name not in properties:
                yield name, f": is missing; {mechanism} needs it"
    if protocol.endswith("SSL"):
        for name in _NOT_FOR_AIOKAFKA:
            if name in properties:
                use = "use ssl.ca.location, ssl.certificate.location and ssl.key.location"
                yield name, f": not understood by the consumer of the raw topic; {use}"


def _unknown(properties: Mapping[str, Any]) -> list[str]:
    """Properties that librdkafka does not know, or whose value it does not take. Files that they name are not read."""
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
        "bootstrap_servers": [server.strip() for server in kafka.bootstrap_servers.split(",")],
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
