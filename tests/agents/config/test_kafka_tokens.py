"""Tokens for OAUTHBEARER: who is asked, how often, what is refused, and that no secret gets into a message."""

import base64
import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest

from susurrus.agents.config import kafka_properties, kafka_tokens
from susurrus.agents.config.kafka_tokens import Token, TokenSource
from susurrus.agents.config.sections import KafkaSettings
from susurrus.agents.kafka import profiles
from susurrus.agents.runtime.faust.connection import for_aiokafka
from susurrus.mechanisms.errors import ConfigurationError, TokenAway
from tests.agents.kafka.test_profiles import refused, settings
from tests.identity_provider import CLIENT, SECRET, IdentityProvider, identity_provider

OIDC: dict[str, Any] = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.token.endpoint.url": "https://id.example/token",
    "sasl.oauthbearer.client.id": CLIENT,
    "sasl.oauthbearer.client.secret": SECRET,
    "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=pool-1",
}
MSK: dict[str, Any] = {"security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM"}
BROKERS = "b-1.demo.kafka.eu-west-1.amazonaws.com:9098"


def tokens(provider: IdentityProvider, **more: Any) -> TokenSource:
    properties = {**provider.properties, "bootstrap.servers": f"b:{id(provider)}", **more}
    return kafka_tokens.source_of("OAUTHBEARER", properties)


class Clock:
    """Of the source, moved by hand."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def time(self) -> float:
        return self.now

    monotonic = time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(kafka_tokens, "time", found)
    return found


def test_a_token_serves_all_until_half_of_its_life_is_over(clock: Clock) -> None:
    asked: list[float] = []

    def ask() -> Token:
        asked.append(clock.now)
        return Token(f"t{len(asked)}", clock.now + 100)

    source = TokenSource(ask, {"a": "b"})
    assert [source.for_librdkafka("") for _ in range(3)] == [("t1", 1_100.0, "", {"a": "b"})] * 3
    clock.now += 49
    assert source.token().text == "t1"
    clock.now += 2
    assert source.token().text == "t2"
    assert asked == [1_000.0, 1_051.0]


def test_what_is_held_serves_while_nobody_answers_and_a_failure_answers_for_all(clock: Clock) -> None:
    asked: list[float] = []
    away = [False]

    def ask() -> Token:
        asked.append(clock.now)
        if away[0]:
            raise TokenAway("away")
        return Token("t", clock.now + 100)

    source = TokenSource(ask, {})
    source.token()
    away[0] = True
    clock.now += 60
    assert [source.token().text for _ in range(50)] == ["t"] * 50
    assert len(asked) == 2
    clock.now += 41
    for _ in range(50):
        with pytest.raises(TokenAway):
            source.token()
    assert len(asked) == 3
    away[0] = False
    clock.now += 3
    assert source.token().until == clock.now + 100


def test_all_clients_of_the_same_properties_share_a_source() -> None:
    kafka = KafkaSettings(bootstrap_servers="b:1", properties=OIDC)
    spaced = {**OIDC, "sasl.oauthbearer.extensions": "logicalCluster=lkc-1, identityPoolId=pool-1 ,"}
    one, other = (
        for_aiokafka(each)["sasl_oauth_token_provider"]
        for each in (kafka, KafkaSettings(bootstrap_servers="b:1", properties=spaced))
    )
    assert one.extensions() == other.extensions() == {"logicalCluster": "lkc-1", "identityPoolId": "pool-1"}
    given = {"bootstrap.servers": "b:1", **OIDC}
    first = kafka_tokens.source_of("OAUTHBEARER", given)
    assert kafka_tokens.source_of("OAUTHBEARER", {**given, "client.id": "x"}) is first
    assert kafka_tokens.source_of("OAUTHBEARER", {**given, "sasl.oauthbearer.scope": "x"}) is not first


def test_the_identity_provider_is_asked_as_the_standard_says() -> None:
    with identity_provider() as provider:
        source = tokens(provider, **{"sasl.oauthbearer.scope": "api://kafka/.default"})
        found = source.token()
        assert provider.forms == [{"grant_type": "client_credentials", "scope": "api://kafka/.default"}]
        assert found.subject == CLIENT
        assert 590 < found.until - time.time() <= 600
        assert source.token() is found
        provider.opaque = True  # not a JWT: how long it lasts is in the answer
        opaque = tokens(provider, **{"sasl.oauthbearer.scope": "opaque"}).token()
        assert (opaque.text, opaque.subject) == ("opaque", "")
        assert 590 < opaque.until - time.time() <= 600


@pytest.mark.parametrize(
    ("status", "away", "says"),
    [
        (503, True, "is not ready (HTTP 503, temporarily_unavailable); see to it if this stays"),
        (429, True, "is not ready (HTTP 429, temporarily_unavailable); see to it if this stays"),
        (404, False, "gives no tokens there (HTTP 404, temporarily_unavailable); correct it"),
        (307, False, "gives no tokens there (HTTP 307, temporarily_unavailable); correct it"),
        (
            400,
            False,
            '"sasl.oauthbearer.client.id" and "sasl.oauthbearer.client.secret": the identity provider refuses them',
        ),
    ],
)
def test_a_refusal_says_whether_to_wait_and_never_what_was_sent(
    status: int, away: bool, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    with identity_provider() as provider, caplog.at_level(logging.DEBUG):
        provider.status = status
        with pytest.raises(ConfigurationError) as caught:
            tokens(provider).token()
        assert len(provider.forms) == 1
    assert says in str(caught.value)
    assert isinstance(caught.value, TokenAway) == away
    for text in (str(caught.value), caplog.text):
        assert SECRET not in text
        assert base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode() not in text


def test_a_token_is_in_no_representation() -> None:
    assert "hidden" not in repr(Token("hidden", 1.0))


def test_nobody_is_asked_before_a_client_connects() -> None:
    with identity_provider() as provider:
        ours = settings(
            provider.properties, kafka={"bootstrap_servers": "127.0.0.1:1", "properties": provider.properties}
        )
        assert profiles.refusals(ours) == []
        for_aiokafka(ours.kafka)
        assert provider.forms == []
        librdkafkas = kafka_properties.librdkafka(ours.kafka)
        assert len(provider.forms) == 1
    assert SECRET not in str({name: value for name, value in librdkafkas.items() if name != "oauth_cb"})


@pytest.mark.parametrize(
    ("without", "properties", "says"),
    [
        (
            "sasl.oauthbearer.client.secret",
            OIDC,
            '"sasl.oauthbearer.client.secret": is missing; sasl.oauthbearer.method=oidc needs',
        ),
        ("sasl.oauthbearer.client.id", OIDC, '"sasl.oauthbearer.client.id": is missing'),
        ("sasl.oauthbearer.token.endpoint.url", OIDC, '"sasl.oauthbearer.token.endpoint.url": is missing'),
        ("sasl.oauthbearer.method", OIDC, '"sasl.oauthbearer.method": is missing; set oidc'),
        ("", {**OIDC, "sasl.oauthbearer.extensions": "a"}, '"sasl.oauthbearer.extensions": write name=value'),
        ("", {**OIDC, "sasl.oauthbearer.extensions": "a="}, '"sasl.oauthbearer.extensions": write name=value'),
        ("", {**OIDC, "sasl.oauthbearer.extensions": "a=1,pool-id=1"}, "names of letters only"),
        ("", {**OIDC, "sasl.oauthbearer.extensions": "auth=1"}, "auth is taken"),
        ("", {**OIDC, "sasl.oauthbearer.extensions": "a=é"}, '"sasl.oauthbearer.extensions": write name=value'),
        ("", {**OIDC, "sasl.oauthbearer.token.endpoint.url": "id"}, "write an address that begins with https://"),
        ("", {**OIDC, "sasl.oauthbearer.metadata.authentication.type": "aws_iam"}, "set sasl.mechanism to AWS_MSK_IAM"),
        ("", {**OIDC, "sasl.oauthbearer.assertion.file": "/a"}, '"sasl.oauthbearer.assertion.file": leave it out'),
        ("", {**MSK, "sasl.oauthbearer.scope": "x"}, '"sasl.oauthbearer.scope": leave it out; AWS_MSK_IAM takes'),
        ("", MSK, '"sasl.mechanism" = "AWS_MSK_IAM": the region is not known; set AWS_REGION'),
    ],
)
def test_what_is_missing_or_unknown_is_refused(
    without: str, properties: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    line = refused({name: value for name, value in properties.items() if name != without})
    assert says in line
    assert SECRET not in line


def test_a_grant_that_is_not_known_is_refused() -> None:
    assertion = "urn:ietf:params:oauth:grant-type:jwt-bearer"
    assert "client_credentials is the only one" in refused({**OIDC, "sasl.oauthbearer.grant.type": assertion})


def test_what_is_for_tests_only_is_remarked_upon() -> None:
    unsecured = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "enable.sasl.oauthbearer.unsecure.jwt": True,
    }
    [found] = profiles.findings(settings(unsecured))
    assert found.text.startswith(
        'kafka.properties."enable.sasl.oauthbearer.unsecure.jwt": anybody can write such a token'
    )
    [found] = profiles.findings(settings({**OIDC, "sasl.oauthbearer.token.endpoint.url": "http://id/token"}))
    assert "the client's secret goes there unencrypted" in found.text
    assert found.action == "use https"
    assert list(profiles.findings(settings(OIDC))) == []


def test_unsecured_tokens_are_librdkafkas() -> None:
    config = "principalClaimName=azp principal=admin scopeClaimName=roles scope=a,b lifeSeconds=60"
    given = {
        "enable.sasl.oauthbearer.unsecure.jwt": "true",
        "sasl.oauthbearer.config": config,
        "bootstrap.servers": "u:1",
    }
    found = kafka_tokens.source_of("OAUTHBEARER", given).token()
    head, claims, signature = found.text.split(".")
    assert signature == ""
    assert json.loads(base64.urlsafe_b64decode(head + "==")) == {"alg": "none"}
    read = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    assert (read["azp"], read["roles"], round(read["exp"] - read["iat"])) == ("admin", ["a", "b"], 60)


def test_aws_signs_for_msk(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Without a network: the signer needs none where the credentials are in the environment."""
    pytest.importorskip("aws_msk_iam_sasl_signer")
    for name, value in (
        ("ACCESS_KEY_ID", "AKIDEXAMPLE"),
        ("SECRET_ACCESS_KEY", SECRET),
        ("EC2_METADATA_DISABLED", "true"),
    ):
        monkeypatch.setenv(f"AWS_{name}", value)
    kafka = KafkaSettings(bootstrap_servers=BROKERS, properties=MSK)
    with caplog.at_level(logging.DEBUG):
        made = kafka_properties.librdkafka(kafka)
        text, until, _, extensions = made.pop("oauth_cb")("")
    assert made == {"bootstrap.servers": BROKERS, "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    url = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    assert url.startswith("https://kafka.eu-west-1.amazonaws.com/?Action=kafka-cluster%3AConnect&X-Amz-Algorithm=")
    assert 800 < until - time.time() <= 900
    assert extensions == {}
    signature = url.partition("X-Amz-Signature=")[2].partition("&")[0]
    assert len(signature) == 64
    assert signature not in caplog.text
    assert SECRET not in caplog.text
    assert for_aiokafka(kafka)["sasl_mechanism"] == "OAUTHBEARER"
    assert profiles.refusals(settings({}, kafka={"bootstrap_servers": BROKERS, "properties": MSK})) == []


def test_without_credentials_of_aws_it_says_where_they_may_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("aws_msk_iam_sasl_signer")
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "PROFILE"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    source = kafka_tokens.source_of("AWS_MSK_IAM", {"bootstrap.servers": BROKERS.replace("b-1", "b-9")})
    with pytest.raises(TokenAway, match=r"AWS gives no credentials .*give this machine a role"):
        source.token()


def test_without_the_signer_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "aws_msk_iam_sasl_signer", None)
    [one] = profiles.refusals(settings({}, kafka={"bootstrap_servers": BROKERS, "properties": MSK}))
    assert (one.level, one.action) == ("unknown", 'pip install "susurrus[msk]"')
