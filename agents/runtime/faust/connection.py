"""How Faust and its aiokafka consumer reach the cluster: librdkafka's properties, translated.

agents/config/kafka_checks.py refuses what aiokafka cannot do, before anything connects.
"""

import asyncio
from typing import Any

from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaConnectionError
from faust import auth

from susurrus.agents.config.kafka_properties import (
    INTEGERS,
    mechanism_of,
    protocol_of,
    tls_context,
    token_source,
    whole,
)
from susurrus.agents.config.kafka_tokens import OAUTHBEARER, TokenSource
from susurrus.agents.config.sections import ClusterSettings
from susurrus.mechanisms.errors import ConfigurationError


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc, unused-ignore]
    """aiokafka asks it for a token at each connection."""

    def __init__(self, source: TokenSource, kafka: ClusterSettings) -> None:
        """kafka: the cluster that the tokens are for, whose section messages name."""
        self._source = source
        self._kafka = kafka

    async def token(self) -> str:
        """The text of a token that has not expired. Raises KafkaConnectionError, after which aiokafka tries again."""
        try:
            found = await asyncio.get_running_loop().run_in_executor(None, self._source.token)
        except ConfigurationError as error:
            raise KafkaConnectionError(self._kafka.named(str(error))) from error
        return found.text

    def extensions(self) -> dict[str, str]:
        """SASL extensions (RFC 7628, section 3.1)."""
        return dict(self._source.extensions)


def for_aiokafka(kafka: ClusterSettings) -> dict[str, Any]:
    """Keyword arguments that every aiokafka client starts from. Properties that have no counterpart there are left out.

    Raises ConfigurationError when certificate files cannot be loaded.
    """
    properties = kafka.properties
    arguments: dict[str, Any] = {
        "bootstrap_servers": [server.strip() for server in kafka.bootstrap_servers.split(",")],
        "security_protocol": (protocol := protocol_of(properties)),
    }
    if (context := tls_context(kafka)) is not None:
        arguments["ssl_context"] = context
    if protocol.startswith("SASL"):
        arguments["sasl_mechanism"] = (mechanism := mechanism_of(properties))
        if (source := token_source({"bootstrap.servers": kafka.bootstrap_servers, **properties})) is not None:
            arguments |= {"sasl_mechanism": OAUTHBEARER, "sasl_oauth_token_provider": TokenProvider(source, kafka)}
        elif mechanism == "GSSAPI":
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
    if kafka.in_process:
        arguments["check_crcs"] = False  # the embedded broker writes commit markers without a checksum
    return arguments


def for_faust(kafka: ClusterSettings) -> dict[str, Any]:
    """Arguments of ``faust.App`` that say how to reach the cluster: ``broker`` and ``broker_credentials``."""
    ours = for_aiokafka(kafka)
    mechanism, context = ours.get("sasl_mechanism"), ours.get("ssl_context")
    credentials: Any = None
    if mechanism == "GSSAPI":
        service = ours["sasl_kerberos_service_name"]
        credentials = auth.GSSAPICredentials(kerberos_service_name=service, ssl_context=context, mechanism=mechanism)
    elif mechanism == OAUTHBEARER:
        credentials = auth.OAuthCredentials(oauth_cb=ours["sasl_oauth_token_provider"], ssl_context=context)
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
