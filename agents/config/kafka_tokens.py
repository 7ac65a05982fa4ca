"""SASL/OAUTHBEARER: one source of tokens for both of Kafka's clients, which asks for the next one before the last expires.

librdkafka asks it by a callback, when four fifths of a token's life are over. aiokafka asks at each connection. All clients of a
process share the source, so a worker of many partitions costs the identity provider one request per token. No message holds a
secret or a token.
"""

import base64
import json
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from susurrus.agents.config import kafka_oidc
from susurrus.agents.finding import Finding, error_of
from susurrus.mechanisms.errors import ConfigurationError, TokenAway

log = logging.getLogger(__name__)

OAUTHBEARER: Final = "OAUTHBEARER"
AWS_MSK_IAM: Final = "AWS_MSK_IAM"
"""The mechanism's name in Java's clients. On the wire it is OAUTHBEARER with a signed URL as the token."""
MECHANISMS: Final = (OAUTHBEARER, AWS_MSK_IAM)
PROPERTIES: Final = frozenset(
    {
        "enable.sasl.oauthbearer.unsecure.jwt", "sasl.oauthbearer.config", "sasl.oauthbearer.extensions",
        "sasl.oauthbearer.method", *kafka_oidc.PROPERTIES,
    }
)  # fmt: skip
"""What the source reads, so that no client needs it."""

_USED: Final = 0.5
"""The share of a token's life after which the next one is asked for: a client that connects then has its session for a while."""
_AGAIN_SECONDS: Final = 2.0
"""So long a failure is also the answer for the next clients, of which there may be hundreds."""
_REGION: Final = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")
_EXTENSION: Final = re.compile(r"[A-Za-z]+=[\x20-\x7e\t\r\n]+")
"""RFC 7628, section 3.1. With another one a client would wait for a token, and not say why there is none."""
NO_SIGNER: Final = Finding(
    "kafka.properties",
    "unknown",
    'kafka.properties."sasl.mechanism": needs AWS\'s signer, which is not installed here',
    'pip install "susurrus[msk]"',
)


@dataclass(frozen=True, slots=True)
class Token:
    """until: in seconds since 1970. subject: whose it is, for librdkafka's own messages."""

    text: str = field(repr=False)
    until: float
    subject: str = ""


class TokenSource:
    """ask: a new token; raises ConfigurationError. Thread-safe."""

    def __init__(self, ask: Callable[[], Token], extensions: Mapping[str, str]) -> None:
        self._ask = ask
        self.extensions: Mapping[str, str] = dict(extensions)
        """SASL extensions that go with every token."""
        self._lock = threading.Lock()
        self._held: Token | None = None
        self._next_at = 0.0
        self._failure: tuple[ConfigurationError, float] | None = None

    def token(self) -> Token:
        """One that has not expired. Raises ConfigurationError where none can be had; what is held is used as long as it lasts."""
        with self._lock:
            if self._held is not None and time.time() < self._next_at:
                return self._held
            try:
                return self._renewed()
            except ConfigurationError:
                if self._held is not None and time.time() < self._held.until:
                    return self._held
                raise

    def _renewed(self) -> Token:
        if self._failure is not None and time.monotonic() < self._failure[1]:
            raise self._failure[0]
        began = time.time()
        try:
            found = self._ask()
        except ConfigurationError as error:
            log.warning("no new token for Kafka: %s", error)
            self._failure = (error, time.monotonic() + _AGAIN_SECONDS)
            raise
        self._held, self._failure = found, None
        self._next_at = began + _USED * (found.until - began)
        return found

    def for_librdkafka(self, _: str) -> tuple[str, float, str, dict[str, str]]:
        """The callback oauth_cb."""
        found = self.token()
        return found.text, found.until, found.subject, dict(self.extensions)


_sources: dict[frozenset[tuple[str, str]], TokenSource] = {}
_sources_lock = threading.Lock()


def source_of(mechanism: str, properties: Mapping[str, Any]) -> TokenSource:
    """The source of these properties (with bootstrap.servers), one for all clients of the process. Asks for nothing yet."""
    key = frozenset(
        (name, str(value)) for name, value in properties.items() if name in PROPERTIES or name == "bootstrap.servers"
    ) | {("", mechanism)}
    with _sources_lock:
        if key not in _sources:
            _sources[key] = _made(mechanism, properties)
        return _sources[key]


def _made(mechanism: str, properties: Mapping[str, Any]) -> TokenSource:
    if mechanism == AWS_MSK_IAM:
        region = _region(str(properties.get("bootstrap.servers", "")))
        return TokenSource(lambda: _signed(region), {})
    if _is_oidc(properties):
        extensions = dict(_extensions(properties))
        return TokenSource(lambda: Token(*kafka_oidc.client_credentials(properties)), extensions)
    return TokenSource(lambda: _unsecured(properties), {})


def problems(mechanism: str, properties: Mapping[str, Any], servers: str) -> Iterator[tuple[str, str]]:
    """Names of properties, and what is wrong with them or why they are missing."""
    if mechanism == AWS_MSK_IAM:
        for name in PROPERTIES & properties.keys():
            yield name, f": leave it out; {AWS_MSK_IAM} takes AWS's own credentials"
        if not _region(servers):
            use = "set AWS_REGION, or use the names of the brokers that MSK gives (…kafka.REGION.amazonaws.com)"
            yield "sasl.mechanism", f' = "{AWS_MSK_IAM}": the region is not known; {use}'
    elif _is_oidc(properties):
        yield from kafka_oidc.problems(properties)
        for name, value in _extensions(properties):
            if not _EXTENSION.fullmatch(f"{name}={value}") or name == "auth":
                use = "write name=value, with commas between them, and names of letters only (auth is taken)"
                yield "sasl.oauthbearer.extensions", f": {use}"
                break
    elif not _is_on(properties, "enable.sasl.oauthbearer.unsecure.jwt"):
        yield "sasl.oauthbearer.method", f": is missing; set oidc, or sasl.mechanism to {AWS_MSK_IAM} for AWS"


def for_tests(mechanism: str, properties: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Names of properties, why they are for tests only, and what to write instead."""
    if mechanism == OAUTHBEARER and not _is_oidc(properties):
        yield (
            "enable.sasl.oauthbearer.unsecure.jwt",
            "anybody can write such a token",
            "use sasl.oauthbearer.method=oidc",
        )
    url = str(properties.get(kafka_oidc.URL, ""))
    if url.startswith("http://"):
        yield kafka_oidc.URL, "the client's secret goes there unencrypted", "use https"


def signs(mechanism: str) -> bool:
    """Whether this machine has the package that the mechanism needs; where it has not, `NO_SIGNER` is what was found."""
    if mechanism == AWS_MSK_IAM:
        try:
            import aws_msk_iam_sasl_signer  # noqa: F401
        except ImportError:
            return False
    return True


def _is_oidc(properties: Mapping[str, Any]) -> bool:
    return str(properties.get("sasl.oauthbearer.method", "")).lower() == "oidc"


def _is_on(properties: Mapping[str, Any], name: str) -> bool:
    return str(properties.get(name, "false")).lower() in ("true", "1", "yes", "on")


def _extensions(properties: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and values. librdkafka, too, reads over spaces beside the commas."""
    given = str(properties.get("sasl.oauthbearer.extensions", "")).split(",")
    pairs = (pair.strip().partition("=") for pair in given if pair.strip())
    return [(name, value) for name, _, value in pairs]


def _unsecured(properties: Mapping[str, Any]) -> Token:
    """A token that nobody has signed, as librdkafka makes it from sasl.oauthbearer.config (RFC 7515, appendix A.5)."""
    given = dict(
        pair.split("=", 1) for pair in str(properties.get("sasl.oauthbearer.config", "")).split() if "=" in pair
    )
    now = time.time()
    subject, until = given.get("principal", ""), now + float(given.get("lifeSeconds", 3600))
    claims: dict[str, Any] = {given.get("principalClaimName", "sub"): subject, "iat": now, "exp": until}
    if scope := given.get("scope"):
        claims[given.get("scopeClaimName", "scope")] = scope.split(",")
    parts = (
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in ({"alg": "none"}, claims)
    )
    return Token(".".join([*parts, ""]), until, subject)


def _region(servers: str) -> str:
    if found := _REGION.search(servers):
        return found[1]
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or ""


def _signed(region: str) -> Token:
    """A URL that AWS's signer signs with the credentials of this machine: of the environment, a profile, or its role."""
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
    except ImportError:
        raise error_of([NO_SIGNER]) from None
    logging.getLogger("botocore").setLevel(logging.INFO)  # below, it writes signatures to the log
    try:
        text, until = MSKAuthTokenProvider.generate_auth_token(region)
    except Exception as error:  # botocore's errors have no common base, and without credentials it is an AttributeError
        raise TokenAway(
            f'kafka.properties."sasl.mechanism" = "{AWS_MSK_IAM}": AWS gives no credentials ({type(error).__name__})',
            "give this machine a role, or set AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        ) from None
    return Token(text, until / 1000)
