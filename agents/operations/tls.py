"""Why TLS with a broker fails, in one sentence with the property to mend.

Brokers answer with an alert, a number of RFC 8446, section 6, that librdkafka passes on in OpenSSL's words. Its own refusal of a
certificate has one text for all reasons, so Python's TLS is asked, whose words say which one. The consumer of the raw topic uses
Python's TLS, too: what only Python refuses is found before the group is joined.
"""

import datetime
import re
import socket
import ssl
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from cryptography import x509

from susurrus.agents.config.kafka_certificates import CERTIFICATES
from susurrus.agents.config.kafka_properties import ssl_context, tls_context
from susurrus.agents.config.sections import ClusterSettings
from susurrus.agents.finding import Finding
from susurrus.mechanisms.errors import ConfigurationError

_ALERT: Final = re.compile(r"SSL alert number (\d+)")
_CLIENT: Final = 'kafka.properties."{own}": {where} refuses this client\'s certificate'
_NO_VERSION: Final = (
    'kafka.properties."security.protocol": {where} speaks no version of TLS that this client speaks',
    "enable TLSv1.2 or TLSv1.3 there (ssl.enabled.protocols of the broker)",
)
_NO_CERTIFICATE: Final = (
    'kafka.properties."ssl.certificate.location": {where} asks for a client\'s certificate, and there is none'
)
_SET_IT: Final = "set it and ssl.key.location, or use a listener without ssl.client.auth=required"
_SIGNED: Final = "that an authority in the brokers' trust store has signed for clients"
_ALERTS: Final[Mapping[int, tuple[str, str]]] = {
    40: (
        'kafka.properties."ssl.cipher.suites": {where} and this client have no way to encrypt in common, or it refuses the '
        "client's certificate",
        "leave it out, or see which suites and certificates the brokers take",
    ),
    42: (_CLIENT, f"use one {_SIGNED}"),
    43: (f"{_CLIENT}, because it does not know its kind of key", "use one with another, such as RSA or EC P-256"),
    44: (f"{_CLIENT}, because it has been revoked", "use a new one"),
    45: (f"{_CLIENT}, because it has expired", "use a new one"),
    46: (_CLIENT, f"use one that has not expired and {_SIGNED}"),
    48: (
        f"{_CLIENT}, because it does not know who signed it",
        "use one of an authority in the brokers' trust store, or add its authority there",
    ),
    49: (f"{_CLIENT}, because its owner may not come in", "use that of another one, or let it in"),
    51: (f"{_CLIENT}, because the key is not its own", 'correct kafka.properties."ssl.key.location"'),
    70: _NO_VERSION,
    71: (
        'kafka.properties."ssl.cipher.suites": {where} asks for better encryption',
        "leave it out, or name suites that it takes",
    ),
    86: _NO_VERSION,
    112: (
        'kafka.bootstrap_servers="{servers}": {where} has no certificate for this host name',
        "use the name that it has one for",
    ),
    116: (_CLIENT, f"use one {_SIGNED}"),
}
"""A sentence and an action for each alert. own: the property that holds the client's certificate."""
_ends: Final = partial(Finding, "brokers", "failure")
_waits: Final = partial(Finding, "brokers", "failure", waits=True)
_CLIENTS_ALERTS: Final = frozenset({40, 42, 46, 48, 49, 116})
"""What brokers answer where a client sends no certificate: Java and OpenSSL, and both versions of TLS, differ."""


def alert(kafka: ClusterSettings, where: str, text: str) -> Finding | None:
    """What a broker's alert in a client's error text means, or None where it holds none."""
    if (found := _ALERT.search(text)) is None:
        return None
    number, given = int(found[1]), [name for name in CERTIFICATES if name in kafka.properties]
    if number in _CLIENTS_ALERTS and not given and (number != 40 or "ssl.cipher.suites" not in kafka.properties):
        return _ends(_NO_CERTIFICATE.format(where=where), _SET_IT)
    if number in _ALERTS:
        if given and number in _CLIENTS_ALERTS | {45} and (ended := _ended(kafka.properties)) is not None:
            return _ends(f'kafka.properties."{given[0]}": the certificate ended at {ended}', "use a new one")
        own = given[0] if given else CERTIFICATES[0]
        said, action = _ALERTS[number]
        return _ends(said.format(where=where, own=own, servers=kafka.bootstrap_servers), action)
    reason = text.rpartition("SSL routines::")[2].partition(":")[0]
    return _waits(f'kafka.properties."ssl.*": TLS with {where} fails ({reason})', "see the log of the broker")


def unverified(kafka: ClusterSettings, address: str, where: str) -> Finding:
    """Why the certificate of a broker is not believed, which librdkafka does not say. address: "host:port"."""
    try:
        return _handshake(ssl_context(kafka.properties), address, where) or _not_vouched(where)
    except (OSError, ValueError, ConfigurationError):
        return _not_vouched(where)


def for_the_raw_consumer(kafka: ClusterSettings) -> Finding | None:
    """Why Python's TLS, with which the raw topic is read, refuses a broker that librdkafka takes; None if it does not.

    Brokers that cannot be asked are passed over. Raises ConfigurationError where the files cannot be loaded.
    """
    if (context := tls_context(kafka)) is None:
        return None
    for address in kafka.bootstrap_servers.split(","):
        try:
            if (found := _handshake(context, address, address)) is not None:
                return found
        except (OSError, ValueError):
            continue
    return None


def _handshake(context: ssl.SSLContext, address: str, where: str) -> Finding | None:
    """Raises OSError or ValueError where nothing is learnt."""
    host, _, port = address.strip().rpartition("://")[2].rpartition(":")
    try:
        with (
            socket.create_connection((host.strip("[]"), int(port)), timeout=3.0) as connection,
            context.wrap_socket(connection, server_hostname=host.strip("[]")),
        ):
            return None
    except ssl.SSLCertVerificationError as error:
        return _verdict(error.verify_code, error.verify_message, where)


def _verdict(code: int, message: str, where: str) -> Finding:
    """What OpenSSL's number (X509_V_ERR_...) means."""
    match code:
        case 9:
            return _ends(
                f"the clock of this machine: the certificate of {where} is not valid yet",
                "set the clock, or wait until it is",
            )
        case 10:
            return _ends(
                f"the brokers' certificate: that of {where} has expired", "renew it there, or set this machine's clock"
            )
        case 62 | 64:
            return _ends(
                f"kafka.bootstrap_servers: the certificate of {where} is for another host name",
                "use the name that it was made for, also in advertised.listeners of the brokers, or add this name "
                "to the certificate",
            )
        case 3 | 12 | 23:
            return _ends(
                f'kafka.properties."ssl.crl.location": the list of revoked certificates refuses that of {where} '
                f"({message})",
                "renew the list or the certificate",
            )
        case 2 | 18 | 19 | 20 | 21:
            return _not_vouched(where)
    return _ends(
        f'kafka.properties."ssl.ca.location": the certificate of {where} is refused ({message})',
        "give the authority that signed it, or make a certificate that keeps the rules",
    )


def _not_vouched(where: str) -> Finding:
    return _ends(
        f'kafka.properties."ssl.ca.location": does not vouch for the certificate of {where}',
        "give the authority that signed it",
    )


def _ended(properties: Mapping[str, Any]) -> str | None:
    """When the client's certificate expired, if it is a PEM that can be read and has."""
    try:
        held = str(properties.get("ssl.certificate.pem", "")).encode()
        data = held or Path(str(properties["ssl.certificate.location"])).read_bytes()
        until = x509.load_pem_x509_certificate(data).not_valid_after_utc
    except (KeyError, OSError, ValueError):
        return None
    return f"{until:%Y-%m-%dT%H:%M:%SZ}" if until < datetime.datetime.now(datetime.UTC) else None
