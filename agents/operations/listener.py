"""What listens at an address, asked without a Kafka client: used where a client waits for an answer and reports no error.

One request tells it: SaslHandshake, which every version of Kafka takes, and which a listener without SASL refuses in an answer.
"""

import enum
import socket
import ssl
import struct
from typing import Final

_HANDSHAKE: Final = struct.pack(">hhihh", 17, 1, 0, -1, 0)
"""SaslHandshake, version 1: correlation id 0, no client id, no mechanism."""
_ILLEGAL_SASL_STATE: Final = 34
"""The error code of a listener that takes no user and no password."""
_LARGEST: Final = 10_000
"""The most bytes of an answer: mechanisms have short names."""


class Listener(enum.Enum):
    """What answers at an address."""

    OPEN = "Kafka without TLS and SASL"
    SASL = "Kafka with SASL, without TLS"
    TLS = "something that speaks TLS"
    OTHER = "something that is neither Kafka nor speaks TLS"
    SILENT = "something that takes connections and does not answer in time"


def listener(host: str, port: int, seconds: float) -> Listener:
    """What listens there. Raises OSError where nothing does, TimeoutError where no connection is made in so many seconds."""
    with socket.create_connection((host, port), timeout=seconds) as connection:
        try:
            connection.sendall(struct.pack(">i", len(_HANDSHAKE)) + _HANDSHAKE)
            with connection.makefile("rb") as answers:
                size, correlation = struct.unpack(">ii", answers.read(8))
                if correlation == 0 and 10 <= size <= _LARGEST:
                    (code,) = struct.unpack(">h", answers.read(2))
                    return Listener.OPEN if code == _ILLEGAL_SASL_STATE else Listener.SASL
        except TimeoutError:
            return Listener.SILENT
        except (OSError, struct.error):  # it has closed the connection
            pass
    return Listener.TLS if _speaks_tls(host, port, seconds) else Listener.OTHER


def _speaks_tls(host: str, port: int, seconds: float) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((host, port), timeout=seconds) as connection:
        try:
            with context.wrap_socket(connection, server_hostname=host):
                return True
        except OSError:  # it answers otherwise, closes the connection, or is silent
            return False
