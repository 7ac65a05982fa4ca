"""What is said where TLS with a broker fails: each sentence names the property to mend."""

import asyncio
import datetime
import ipaddress
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

from susurrus.agents.broker.cluster import KafkaCluster
from susurrus.agents.broker.network import free_ports
from susurrus.agents.broker.properties import Node
from susurrus.agents.config.kafka_properties import ssl_context
from susurrus.agents.config.sections import KafkaSettings
from susurrus.agents.operations import probe, tls
from susurrus.agents.operations.brokers import Cluster, reach
from susurrus.agents.pipelines import pipeline_of
from susurrus.agents.runtime.ending import MISCONFIGURED
from susurrus.agents.runtime.faust.connection import for_aiokafka
from susurrus.mechanisms.errors import ConfigurationError
from tests.agents.operations.test_probe import CONFIGURATION, settings_for
from tests.broker import started
from tests.waiting import PATIENCE

NOW = datetime.datetime.now(datetime.UTC)
HOURS = datetime.timedelta(hours=1)


@dataclass(frozen=True)
class Holder:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def write(self, path: Path, *, key: bool = True) -> Path:
        private = self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        public = self.certificate.public_bytes(serialization.Encoding.PEM)
        path.write_bytes((private if key else b"") + public)
        return path


def issue(
    name: str, issuer: Holder | None = None, *, host: str = "127.0.0.1", hours: tuple[int, int] = (-1, 24)
) -> Holder:
    """hours: from now on, when it begins and ends. Without an issuer it is an authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    try:
        alternative: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        alternative = x509.DNSName(host)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW + hours[0] * HOURS)
        .not_valid_after(NOW + hours[1] * HOURS)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
        .sign(key if issuer is None else issuer.key, hashes.SHA256())
    )
    return Holder(made, key)


AUTHORITY, STRANGER = issue("authority"), issue("stranger")
EXPIRED = (-48, -24)
OLD_CLIENT = issue("old client", AUTHORITY, hours=EXPIRED)
LISTENERS = {
    "asks": (issue("broker", AUTHORITY), {"ssl.client.auth": "required"}),
    "asks12": (issue("broker", AUTHORITY), {"ssl.client.auth": "required", "ssl.enabled.protocols": "TLSv1.2"}),
    "expired": (issue("broker", AUTHORITY, hours=EXPIRED), {}),
    "young": (issue("broker", AUTHORITY, hours=(24, 48)), {}),
    "elsewhere": (issue("broker", AUTHORITY, host="kafka.example"), {}),
}


class TlsCluster(KafkaCluster):
    """A broker with a listener for each way in which TLS can fail."""

    def __init__(self, directory: Path) -> None:
        super().__init__(1, short_lived=True)
        self.directory = directory
        self.ports = dict(zip(LISTENERS, free_ports(len(LISTENERS)), strict=True))

    def _server_properties(self, node: Node) -> dict[str, str]:
        properties = super()._server_properties(node)
        protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
        for name, (holder, more) in LISTENERS.items():
            properties["listeners"] += f",{name.upper()}://127.0.0.1:{self.ports[name]}"
            protocols += f",{name.upper()}:SSL"
            own = {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(holder.write(self.directory / f"{name}.pem")),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(AUTHORITY.write(self.directory / "authority.pem", key=False)),
                **more,
            }
            properties |= {f"listener.name.{name}.{key}": value for key, value in own.items()}
        return properties | {"listener.security.protocol.map": protocols}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsCluster]:
    made = TlsCluster(tmp_path_factory.mktemp("tls"))
    with started(made):
        yield made


def client(directory: Path, holder: Holder | None, authority: Holder = AUTHORITY, **properties: str) -> dict[str, Any]:
    found = {
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority.write(directory / "ca.pem", key=False)),
        **properties,
    }
    if holder is not None:
        path = str(holder.write(directory / "client.pem"))
        found |= {"ssl.certificate.location": path, "ssl.key.location": path}
    return found


ASKS = '"ssl.certificate.location": {} asks for a client\'s certificate, and there is none'
CASES = {
    "no certificate": ("asks", None, AUTHORITY, ASKS),
    "none, TLS 1.2": ("asks12", None, AUTHORITY, ASKS),
    "a stranger's": ("asks", issue("c", STRANGER), AUTHORITY, '"ssl.certificate.location": {} refuses this client\'s certificate'),
    "a stranger's, TLS 1.2": ("asks12", issue("c", STRANGER), AUTHORITY, '"ssl.certificate.location": {} refuses this client\'s'),
    "an old one": ("asks", OLD_CLIENT, AUTHORITY, '"ssl.certificate.location": the certificate ended at '),
    "an old one, TLS 1.2": ("asks12", OLD_CLIENT, AUTHORITY, '"ssl.certificate.location": the certificate ended at '),
    "another authority": ("asks", None, STRANGER, '"ssl.ca.location": does not vouch for the certificate of {}'),
    "an expired broker": ("expired", None, AUTHORITY, "the brokers' certificate: that of {} has expired; renew it there"),
    "a young broker": ("young", None, AUTHORITY, "the clock of this machine: the certificate of {} is not valid yet"),
    "another host": ("elsewhere", None, AUTHORITY, "kafka.bootstrap_servers: the certificate of {} is for another host name"),
}  # fmt: skip


@pytest.mark.broker
@pytest.mark.xdist_group("tls broker")
@pytest.mark.parametrize("case", CASES)
def test_a_failure_of_tls_names_the_property_and_ends_the_worker(
    cluster: TlsCluster, tmp_path: Path, case: str
) -> None:
    listener, holder, authority, says = CASES[case]
    server = f"127.0.0.1:{cluster.ports[listener]}"
    found = probe.look(pipeline_of(settings_for(server, client(tmp_path, holder, authority))))
    assert not isinstance(found, probe.Ready)
    assert not found[0].waits
    assert says.format(server) in str(found[0])
    assert "network" not in str(found[0])


@pytest.mark.broker
@pytest.mark.xdist_group("tls broker")
@pytest.mark.parametrize("listener", ["asks", "asks12"])
def test_the_right_certificate_opens_the_door(cluster: TlsCluster, tmp_path: Path, listener: str) -> None:
    server = f"127.0.0.1:{cluster.ports[listener]}"
    kafka = KafkaSettings(bootstrap_servers=server, properties=client(tmp_path, issue("c", AUTHORITY)))
    assert reach(Cluster(kafka)).list_topics(timeout=20).brokers
    assert tls.for_the_raw_consumer(kafka) is None


@pytest.mark.broker
@pytest.mark.xdist_group("tls broker")
def test_a_worker_without_a_certificate_ends_as_misconfigured(cluster: TlsCluster, tmp_path: Path) -> None:
    config = tmp_path / "p.toml"
    properties = "".join(f'"{name}" = "{value}"\n' for name, value in client(tmp_path, None).items())
    server = f"127.0.0.1:{cluster.ports['asks']}"
    config.write_text(CONFIGURATION.format(servers=server) + f"[kafka.properties]\n{properties}")
    for command in ("worker", "status"):
        done = subprocess.run(
            [sys.executable, "-m", "susurrus.agents.cli", command, "--config", str(config)],
            env={"PATH": "", "SUSURRUS_SECRET": "5a" * 32, "COLUMNS": "400"},
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == MISCONFIGURED, done.stderr
        assert '"ssl.certificate.location": ' in done.stderr


ALERT = "Receive failed: error:0A000{:03X}:SSL routines::tlsv1 alert {}: SSL alert number {} (after 1ms in state SSL_HANDSHAKE)"
"""As librdkafka passes on what OpenSSL says of an alert."""


@pytest.mark.parametrize(
    ("number", "given", "names"),
    [
        (40, {}, "ssl.certificate.location"),
        (40, {"ssl.cipher.suites": "x"}, "ssl.cipher.suites"),
        (42, {}, "ssl.certificate.location"),
        (42, {"ssl.keystore.location": "/k"}, "ssl.keystore.location"),
        (43, {"ssl.certificate.pem": "x"}, "ssl.certificate.pem"),
        (44, {"ssl.certificate.location": "/c"}, "ssl.certificate.location"),
        (45, {"ssl.certificate.location": "/c"}, "ssl.certificate.location"),
        (46, {"ssl.certificate.location": "/c"}, "ssl.certificate.location"),
        (48, {"ssl.certificate.location": "/c"}, "ssl.certificate.location"),
        (49, {"ssl.certificate.location": "/c"}, "ssl.certificate.location"),
        (51, {"ssl.certificate.location": "/c"}, "ssl.key.location"),
        (70, {}, "security.protocol"),
        (71, {}, "ssl.cipher.suites"),
        (86, {}, "security.protocol"),
        (112, {}, "kafka.bootstrap_servers"),
        (116, {}, "ssl.certificate.location"),
    ],
)  # fmt: skip
def test_each_alert_names_what_to_mend(number: int, given: dict[str, str], names: str) -> None:
    kafka = KafkaSettings(bootstrap_servers="b:9093", properties={"security.protocol": "SSL", **given})
    found = tls.alert(kafka, "b:9093", ALERT.format(1000 + number, "of some kind", number))
    assert found is not None
    assert not found.waits
    assert names in str(found)
    assert "b:9093" in found.text
    assert found.action


def test_an_alert_that_says_nothing_of_settings_is_waited_for() -> None:
    kafka = KafkaSettings(properties={"security.protocol": "SSL"})
    found = tls.alert(kafka, "b:9093", ALERT.format(1080, "internal error", 80))
    assert found is not None
    assert found.waits
    assert "(tlsv1 alert internal error)" in found.text
    assert tls.alert(kafka, "b:9093", "Connect to b:9093 failed: Connection refused") is None


@pytest.mark.parametrize(
    ("holder", "authority", "says"),
    [
        (issue("broker", AUTHORITY), AUTHORITY, None),
        (issue("broker", AUTHORITY), STRANGER, "does not vouch for the certificate of"),
        (issue("broker", AUTHORITY, hours=EXPIRED), AUTHORITY, "has expired; renew it there"),
        (issue("broker", AUTHORITY, host="kafka.example"), AUTHORITY, "is for another host name"),
    ],
)
def test_what_only_the_raw_consumers_tls_refuses_is_found(
    tmp_path: Path, holder: Holder, authority: Holder, says: str | None
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(holder.write(tmp_path / "broker.pem"))
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                try:
                    context.wrap_socket(connection, server_side=True).close()
                except OSError:
                    return

        thread = threading.Thread(target=answer)
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        kafka = KafkaSettings(bootstrap_servers=address, properties=client(tmp_path, None, authority))
        found = tls.for_the_raw_consumer(kafka)
        thread.join(20)
    assert (found is None) == (says is None)
    if found is not None:
        assert says is not None
        assert says in str(found)
        assert not found.waits


def test_authorities_that_librdkafka_takes_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ssl.create_default_context

    def strict(**files: Any) -> ssl.SSLContext:
        """As Python 3.13 makes it."""
        context = made(**files)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)
    assert not ssl_context({}).verify_flags & ssl.VERIFY_X509_STRICT


def test_files_that_cannot_be_loaded_are_the_configurations() -> None:
    with pytest.raises(ConfigurationError, match=r"ssl\.ca\.location"):
        tls.for_the_raw_consumer(KafkaSettings(properties={"security.protocol": "SSL", "ssl.ca.location": "/nowhere"}))


def as_pkcs12(directory: Path, holder: Holder, password: str) -> str:
    encryption = serialization.BestAvailableEncryption(password.encode())
    data = pkcs12.serialize_key_and_certificates(b"c", holder.key, holder.certificate, None, encryption)
    (directory / "client.p12").write_bytes(data)
    return str(directory / "client.p12")


@pytest.mark.broker
@pytest.mark.xdist_group("tls broker")
@pytest.mark.parametrize("kind", ["PKCS#12", "inline", "inline, encrypted"])
def test_other_forms_of_a_certificate_open_every_client(cluster: TlsCluster, tmp_path: Path, kind: str) -> None:
    holder, password = issue("c", AUTHORITY), "hunter2"
    if kind == "PKCS#12":
        own = {"ssl.keystore.location": as_pkcs12(tmp_path, holder, password), "ssl.keystore.password": password}
    else:
        encrypted = kind == "inline, encrypted"
        key = holder.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(password.encode()) if encrypted else serialization.NoEncryption(),
        )
        own = {
            "ssl.certificate.pem": holder.certificate.public_bytes(serialization.Encoding.PEM).decode(),
            "ssl.key.pem": key.decode(),
            **({"ssl.key.password": password} if encrypted else {}),
        }
    before = set(Path(tempfile.gettempdir()).iterdir())
    kafka = KafkaSettings(
        bootstrap_servers=f"127.0.0.1:{cluster.ports['asks']}", properties=client(tmp_path, None, **own)
    )
    assert reach(Cluster(kafka)).list_topics(timeout=20).brokers
    assert asyncio.run(topics_seen_by_aiokafka(kafka)) is not None
    assert not [new for new in set(Path(tempfile.gettempdir()).iterdir()) - before if new.is_file()]


async def topics_seen_by_aiokafka(kafka: KafkaSettings) -> set[str]:
    from aiokafka import AIOKafkaConsumer

    consumer = AIOKafkaConsumer(**for_aiokafka(kafka))
    try:
        await consumer.start()
        return set(await consumer.topics())
    finally:
        await consumer.stop()


@pytest.mark.parametrize(
    ("properties", "names"),
    [
        ({"ssl.keystore.location": "/nowhere"}, "ssl.keystore.location"),
        ({"ssl.certificate.pem": "x", "ssl.key.pem": "y"}, "ssl.certificate.pem, ssl.key.pem"),
        ({"ssl.crl.location": "/nowhere"}, "ssl.crl.location"),
        ({"ssl.cipher.suites": "none-such"}, "ssl.cipher.suites"),
    ],
)  # fmt: skip
def test_what_cannot_be_loaded_is_named(properties: dict[str, str], names: str) -> None:
    with pytest.raises(ConfigurationError, match=f"check {re.escape(names)}$"):
        ssl_context(properties)


def test_a_wrong_password_of_a_store_is_named(tmp_path: Path) -> None:
    store = as_pkcs12(tmp_path, issue("c", AUTHORITY), "right")
    with pytest.raises(ConfigurationError, match=r"check ssl\.keystore\.location, ssl\.keystore\.password$") as caught:
        ssl_context({"ssl.keystore.location": store, "ssl.keystore.password": "wrong-one"})
    assert "wrong-one" not in str(caught.value)
