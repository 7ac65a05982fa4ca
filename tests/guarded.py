"""A broker that asks for rights, with an open, a password and a TLS listener, and a certificate for it."""

import contextlib
import datetime
import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from susurrus.agents.broker.cluster import KafkaCluster
from susurrus.agents.broker.network import free_ports
from susurrus.agents.broker.properties import Node
from susurrus.agents.logs import SILENT
from tests.broker import Broker, started, wait_for

PASSWORD = "hunter2"
PRINCIPAL = "User:susurrus"
SASL = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "susurrus",
    "sasl.password": PASSWORD,
}


def certificate(directory: Path) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1: the broker's PEM with the key, and the authority's without."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "susurrus tests")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    public = made.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (directory / "broker.pem").write_bytes(private + public)
    (directory / "authority.pem").write_bytes(public)
    return directory / "broker.pem", directory / "authority.pem"


class GuardedCluster(KafkaCluster):
    """One broker with an authorizer. A client without a password may do everything; ``susurrus`` may do what it is granted."""

    def __init__(self, pem: Path, secure: int, plain: int) -> None:
        super().__init__(1, short_lived=True)
        self.pem, self.secure, self.plain = pem, secure, plain

    def _server_properties(self, node: Node) -> dict[str, str]:
        module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        properties = super()._server_properties(node)
        listeners = f"SECURE://127.0.0.1:{self.secure},PASSWORD://127.0.0.1:{self.plain}"
        properties |= {
            "listeners": f"{properties['listeners']},{listeners}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL,PASSWORD:SASL_PLAINTEXT",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "listener.name.secure.ssl.keystore.type": "PEM",
            "listener.name.secure.ssl.keystore.location": str(self.pem),
        }
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        for name in ("secure", "password"):
            properties[f"listener.name.{name}.sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256"
            properties[f"listener.name.{name}.scram-sha-256.sasl.jaas.config"] = scram
            properties[f"listener.name.{name}.plain.sasl.jaas.config"] = f'{module} user_susurrus="{PASSWORD}";'
        return properties


@dataclass(frozen=True)
class Guarded:
    """The addresses of the three listeners, and the authority of the secure one."""

    open: str
    password: str
    secure: str
    authority: Path

    @property
    def broker(self) -> Broker:
        """Its open listener."""
        return Broker(self.open, description="a broker with rights")

    def admin(self) -> AdminClient:
        """A client that may do everything."""
        return AdminClient({"bootstrap.servers": self.open})

    def new_user(self, name: str) -> dict[str, str]:
        """A user without any right, whose password the broker keeps; the properties with which it comes."""
        secret = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        changes = [UserScramCredentialUpsertion(name, secret, PASSWORD.encode())]
        admin = self.admin()  # kept until it has the answer
        for future in admin.alter_user_scram_credentials(changes).values():
            future.result(20)
        properties = {**SASL, "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": name}

        def known() -> bool:
            try:
                AdminClient({"bootstrap.servers": self.password, **properties}, logger=SILENT).list_topics(timeout=10)
            except KafkaException:
                return False
            return True

        wait_for(known, "the broker knows the user")
        return properties


@contextlib.contextmanager
def guarded_broker(directory: Path) -> Iterator[Guarded]:
    """The broker, for a block; its certificate goes to the directory."""
    pem, authority = certificate(directory)
    secure, plain = free_ports(2)
    cluster = GuardedCluster(pem, secure, plain)
    with started(cluster):
        yield Guarded(cluster.bootstrap_servers, f"127.0.0.1:{plain}", f"127.0.0.1:{secure}", authority)
