"""A broker that lets clients in by tokens, and who gives them."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from susurrus.agents.broker.cluster import KafkaCluster
from susurrus.agents.broker.network import free_ports
from susurrus.agents.broker.properties import Node
from tests.broker import started
from tests.identity_provider import AUDIENCE, ISSUER, SECRET, IdentityProvider, identity_provider

_ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
UNSECURED: dict[str, Any] = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "OAUTHBEARER",
    "enable.sasl.oauthbearer.unsecure.jwt": True,
    "sasl.oauthbearer.config": "principal=worker scope=kafka lifeSeconds=600",
}


class OAuthCluster(KafkaCluster):
    """A broker with a listener that verifies tokens, and one that believes all. Both end a session with its token."""

    def __init__(self, provider: IdentityProvider) -> None:
        super().__init__(1, short_lived=True)
        self.provider = provider
        self.signed, self.unsecured = free_ports(2)

    def _server_properties(self, node: Node) -> dict[str, str]:
        properties = super()._server_properties(node)
        module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
        signed, unsecured = "listener.name.signed", "listener.name.unsecured"
        return properties | {
            "listeners": f"{properties['listeners']},SIGNED://127.0.0.1:{self.signed},UNSECURED://127.0.0.1:{self.unsecured}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SIGNED:SASL_PLAINTEXT,"
            "UNSECURED:SASL_PLAINTEXT",
            f"{signed}.sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{signed}.oauthbearer.sasl.jaas.config": f"{module};",
            f"{signed}.oauthbearer.sasl.server.callback.handler.class": "org.apache.kafka.common.security.oauthbearer."
            "OAuthBearerValidatorCallbackHandler",
            f"{signed}.oauthbearer.connections.max.reauth.ms": "3600000",
            # Kafka 4.1.0's default verifies no signature.
            "sasl.oauthbearer.jwt.validator.class": "org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator",
            "sasl.oauthbearer.jwks.endpoint.url": f"{self.provider.url}/keys",
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            f"{unsecured}.sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{unsecured}.oauthbearer.sasl.jaas.config": f'{module} unsecuredLoginStringClaim_sub="broker";',
            f"{unsecured}.oauthbearer.connections.max.reauth.ms": "3600000",
        }


@dataclass(frozen=True)
class Door:
    """The two listeners, and who gives tokens for the first."""

    signed: str
    unsecured: str
    provider: IdentityProvider

    def with_secret_in(self, file: Path) -> dict[str, Any]:
        """What a client needs for the first, with its secret in a file."""
        file.write_text(SECRET + "\n")
        return {**self.provider.properties, "sasl.oauthbearer.client.secret": {"file": file.name}}


@contextlib.contextmanager
def door() -> Iterator[Door]:
    """The broker and its identity provider, for a block."""
    with identity_provider() as provider, pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", f"-D{_ALLOWED}={provider.url}/keys")
        cluster = OAuthCluster(provider)
        with started(cluster):
            yield Door(f"127.0.0.1:{cluster.signed}", f"127.0.0.1:{cluster.unsecured}", provider)
