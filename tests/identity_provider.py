"""An identity provider on loopback: tokens by client credentials, signed, and the keys with which brokers verify them."""

import base64
import contextlib
import json
import time
import urllib.parse
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.web_server import Answer, Request, answering

CLIENT, SECRET = "susurrus-worker", "s3cret-of-the-client"
ISSUER, AUDIENCE = "https://issuer.example", "kafka"


def coded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@dataclass
class IdentityProvider:
    """life: of the tokens from now on, in seconds. status: what it answers instead of tokens, if not 200."""

    life: float = 600.0
    status: int = 200
    audience: str = AUDIENCE
    opaque: bool = False
    issued: int = 0
    forms: list[dict[str, str]] = field(default_factory=list)
    url: str = ""
    key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))

    def reset(self) -> None:
        """Give good tokens again, and count them anew."""
        self.life, self.status, self.audience, self.opaque, self.issued = 600.0, 200, AUDIENCE, False, 0

    @property
    def properties(self) -> dict[str, Any]:
        """What a client needs."""
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": f"{self.url}/token",
            "sasl.oauthbearer.client.id": CLIENT,
            "sasl.oauthbearer.client.secret": SECRET,
            "sasl.oauthbearer.scope": "kafka",
        }

    def token(self, subject: str) -> str:
        now = time.time()
        claims = {
            "sub": subject,
            "iss": ISSUER,
            "aud": self.audience,
            "scope": "kafka",
            "iat": int(now),
            "jti": uuid.uuid4().hex,
        }
        head = {"alg": "RS256", "typ": "JWT", "kid": "one"}
        signed = ".".join(coded(json.dumps(part).encode()) for part in (head, {**claims, "exp": now + self.life}))
        return f"{signed}.{coded(self.key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"

    def keys(self) -> dict[str, Any]:
        numbers = self.key.public_key().public_numbers()
        n, e = (coded(number.to_bytes((number.bit_length() + 7) // 8, "big")) for number in (numbers.n, numbers.e))
        return {"keys": [{"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "one", "n": n, "e": e}]}

    def answer(self, authorization: str, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        self.forms.append(form)
        if self.status != 200:
            return self.status, {"error": "temporarily_unavailable", "error_description": SECRET}
        if authorization != "Basic " + base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode():
            return 401, {"error": "invalid_client", "error_description": f"not {authorization}"}
        self.issued += 1
        text = "opaque" if self.opaque else self.token(form.get("client_id", CLIENT))
        return 200, {"access_token": text, "token_type": "Bearer", "expires_in": self.life}


@contextlib.contextmanager
def identity_provider() -> Iterator[IdentityProvider]:
    """One that answers, for a block."""
    provider = IdentityProvider()

    def answer(request: Request) -> Answer:
        if request.method == "GET":
            status, body = 200, provider.keys()
        else:
            form = dict(urllib.parse.parse_qsl(request.body.decode()))
            status, body = provider.answer(request.headers.get("Authorization", ""), form)
        moved = {"Location": f"{provider.url}/token"} if status in (301, 302, 307) else {}
        return Answer(status, json.dumps(body).encode(), {"Content-Type": "application/json", **moved})

    with answering(answer) as provider.url:
        yield provider
