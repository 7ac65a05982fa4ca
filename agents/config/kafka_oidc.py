"""A token by OIDC's client credentials (RFC 6749, section 4.4), asked for as librdkafka asks for it."""

import base64
import binascii
import http.client
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any, Final

from susurrus.mechanisms.errors import ConfigurationError, TokenAway

URL: Final = "sasl.oauthbearer.token.endpoint.url"
_ID: Final = ("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.credentials.client.id")
_SECRET: Final = ("sasl.oauthbearer.client.secret", "sasl.oauthbearer.client.credentials.client.secret")
_SCOPE: Final = "sasl.oauthbearer.scope"
_SUBJECT: Final = "sasl.oauthbearer.sub.claim.name"
_GRANT: Final = "sasl.oauthbearer.grant.type"
_METADATA: Final = "sasl.oauthbearer.metadata.authentication.type"
PROPERTIES: Final = frozenset(
    {URL, *_ID, *_SECRET, _SCOPE, _SUBJECT, _GRANT, _METADATA, "https.ca.location", "https.ca.pem"}
)
_SECONDS: Final = 10.0
_LARGEST: Final = 1 << 20
_CODES: Final = frozenset(
    {
        "invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type", "invalid_scope",
        "temporarily_unavailable",
    }
)  # fmt: skip
"""What of an answer is shown: the rest may hold what was sent."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The secret goes to no other address."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def problems(properties: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Names of properties, and what is wrong with them or that they are missing."""
    for name in properties:
        if name.startswith("sasl.oauthbearer.assertion."):
            yield name, ": leave it out; a client's secret is the only way in that Susurrus knows (client_credentials)"
    if str(properties.get(_GRANT, "client_credentials")).lower() != "client_credentials":
        yield _GRANT, ": leave it out; client_credentials is the only one that Susurrus knows"
    if str(properties.get(_METADATA, "none")).lower() != "none":
        yield _METADATA, ": leave it out, and give a client's id and secret; for AWS set sasl.mechanism to AWS_MSK_IAM"
    for names in (_ID, _SECRET, (URL,)):
        if not any(name in properties for name in names):
            yield names[0], ": is missing; sasl.oauthbearer.method=oidc needs it"
    if (url := properties.get(URL)) and not str(url).startswith(("https://", "http://")):
        yield URL, ": write an address that begins with https://"


def client_credentials(properties: Mapping[str, Any]) -> tuple[str, float, str]:
    """(token, when it expires in seconds since 1970, its subject). Raises TokenAway or ConfigurationError."""
    url = str(properties[URL])
    place = f'kafka.properties."{URL}"'
    user, secret = (next(str(properties[n]) for n in names if n in properties) for names in (_ID, _SECRET))
    form = {"grant_type": "client_credentials"}
    if scope := properties.get(_SCOPE):
        form["scope"] = str(scope)
    authorization = "Basic " + base64.b64encode(f"{user}:{secret}".encode()).decode()
    headers = {"Authorization": authorization, "Accept": "application/json"}
    began = time.time()
    try:
        request = urllib.request.Request(url, urllib.parse.urlencode(form).encode(), headers)
        opener = urllib.request.build_opener(_NoRedirect, urllib.request.HTTPSHandler(context=_context(properties)))
        with opener.open(request, timeout=_SECONDS) as answer:
            data = answer.read(_LARGEST)
    except urllib.error.HTTPError as error:
        with error:
            raise _refused(error.code, error.read(_LARGEST), place) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(cause, ssl.SSLCertVerificationError):
            raise ConfigurationError(
                f'kafka.properties."https.ca.location": does not vouch for the certificate of {_host(url)} '
                f"({cause.verify_message})",
                "give the authority that signed it",
            ) from None
        said = getattr(cause, "strerror", None) or type(cause).__name__
        raise TokenAway(
            f"{place}: {_host(url)} gives no token ({said})", "see to the identity provider, or correct it"
        ) from None
    return _read(data, began, str(properties.get(_SUBJECT, "sub")), place)


def _refused(status: int, data: bytes, place: str) -> ConfigurationError:
    try:
        code = json.loads(data).get("error")
    except (ValueError, AttributeError):
        code = None
    said = f"HTTP {status}" + (f", {code}" if code in _CODES else "")
    if status in (408, 429) or status >= 500:
        return TokenAway(f"{place}: the identity provider is not ready ({said})", "see to it if this stays")
    names = f'"{_SCOPE}"' if code == "invalid_scope" else f'"{_ID[0]}" and "{_SECRET[0]}"'
    if status in (301, 302, 303, 307, 308, 404, 405):
        return ConfigurationError(f"{place}: gives no tokens there ({said})", "correct it")
    return ConfigurationError(f"kafka.properties.{names}: the identity provider refuses them ({said})", "correct them")


def _read(data: bytes, began: float, subject: str, place: str) -> tuple[str, float, str]:
    try:
        answer = json.loads(data)
        text = answer["access_token"]
        claims = _claims(text)
        ends = [float(claims["exp"])] if "exp" in claims else []
        if "expires_in" in answer:
            ends.append(began + float(answer["expires_in"]))
        return str(text), min(ends), str(claims.get(subject, ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ConfigurationError(
            f"{place}: the answer holds no access_token with a time when it expires",
            "correct the address, or the identity provider",
        ) from None


def _claims(text: str) -> dict[str, Any]:
    """The claims of a JWT, which are not verified: the broker does that. Another token has none."""
    try:
        middle = text.split(".")[1]
        found = json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
    except (IndexError, ValueError, binascii.Error):
        return {}
    return found if isinstance(found, dict) else {}


def _context(properties: Mapping[str, Any]) -> ssl.SSLContext:
    location = properties.get("https.ca.location")
    try:
        context = ssl.create_default_context(
            cafile=None if location in (None, "probe") else str(location), cadata=properties.get("https.ca.pem")
        )
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f'kafka.properties."https.ca.location": cannot be loaded ({error.strerror or type(error).__name__})',
            "correct it",
        ) from None
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # as for brokers (kafka_properties.py)
    return context


def _host(url: str) -> str:
    """The host of an address, without its path and its user, which may hold a secret."""
    return urllib.parse.urlsplit(url).hostname or "it"
