"""The client's certificate for Python's TLS, from PEM files, inline PEM or a PKCS#12 store, as librdkafka takes it."""

import os
import secrets
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

CERTIFICATES: Final = ("ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.location")
"""Where it may be."""


def add_to(context: ssl.SSLContext, properties: Mapping[str, Any]) -> None:
    """Load it, where there is one. Raises OSError, ValueError or ssl.SSLError."""
    location, pem = properties.get("ssl.certificate.location"), properties.get("ssl.certificate.pem")
    if (store := properties.get("ssl.keystore.location")) is not None:
        key, certificate, others = pkcs12.load_key_and_certificates(
            Path(str(store)).read_bytes(), _bytes(properties.get("ssl.keystore.password"))
        )
        if key is None or certificate is None:
            raise ValueError("no key, or no certificate")
        _load(context, key, [certificate, *others])
    elif pem is None and location is not None and "ssl.key.pem" not in properties:
        context.load_cert_chain(str(location), properties.get("ssl.key.location"), properties.get("ssl.key.password"))
    elif pem is not None or location is not None:
        held = _bytes(properties.get("ssl.key.pem")) or Path(str(properties.get("ssl.key.location"))).read_bytes()
        # A password that no key needs is refused there, and librdkafka does not mind.
        password = _bytes(properties.get("ssl.key.password")) if b"ENCRYPTED" in held else None
        chain = x509.load_pem_x509_certificates(_bytes(pem) or Path(str(location)).read_bytes())
        _load(context, serialization.load_pem_private_key(held, password), chain)


def _bytes(value: Any) -> bytes | None:
    return None if value is None else str(value).encode()


def _load(context: ssl.SSLContext, key: Any, chain: list[x509.Certificate]) -> None:
    """Python's TLS takes files only. The key is encrypted in there, by a password that nobody else has; the file goes at once."""
    password = secrets.token_hex(32)
    data = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password.encode()),
    ) + b"".join(certificate.public_bytes(serialization.Encoding.PEM) for certificate in chain)
    descriptor, name = tempfile.mkstemp()
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        context.load_cert_chain(name, password=password)
    finally:
        os.unlink(name)
