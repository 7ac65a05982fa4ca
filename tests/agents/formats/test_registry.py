"""Properties of the registry's client: what it refuses, in which words, without a value."""

from typing import Any

import pytest

from susurrus.agents.formats.registry import Registry
from susurrus.mechanisms.errors import ConfigurationError

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        (
            {"basic.auth.user.inf": f"u:{SECRET}"},
            "basic.auth.user.inf\": the registry's client has no such property; did you",
        ),
        ({"zz": 1}, '"zz": the registry\'s client has no such property; correct its name, or leave it out'),
        (
            {"basic.auth.user.info": SECRET},
            '"basic.auth.user.info": the registry\'s client does not take it; write user:password',
        ),
        (
            {"ssl.key.location": "/x"},
            '"ssl.key.location": the registry\'s client does not take it; give ssl.certificate.location, too',
        ),
        ({"timeout": "soon"}, '"timeout": the registry\'s client does not take it; write a number'),
        (
            {"max.retries": "many", "timeout": 3},
            '"max.retries": the registry\'s client does not take it; write a number',
        ),
        ({"bearer.auth.token": SECRET}, '"bearer.auth.token": the registry\'s client does not take it'),
        (
            {"bearer.auth.credentials.source": "STATIC_TOKEN", "bearer.auth.token": SECRET},
            "output.registry: refused by the registry's",
        ),
    ],
    ids=str,
)
def test_is_blamed_on_the_property(properties: dict[str, Any], says: str) -> None:
    registry = Registry(url="http://registry:8081", properties=properties)
    [found] = registry.findings("output.registry")
    assert (found.subject, found.level) == ("output.registry", "failure")
    with pytest.raises(ConfigurationError) as refused:
        registry.client("output.registry")
    assert says in str(refused.value) == str(found)
    assert SECRET not in str(found)
    assert refused.value.__context__ is None  # the client's own text may hold what was given


def test_two_unknown_names_are_two_lines() -> None:
    with pytest.raises(ConfigurationError) as refused:
        Registry(url="http://r:1", properties={"zz": 1, "ssl.ca": "x"}).client("input.registry")
    assert [line.split(":")[0] for line in str(refused.value).splitlines()] == [
        'input.registry.properties."zz"',
        'input.registry.properties."ssl.ca"',
    ]


def test_a_file_may_be_on_the_workers_only() -> None:
    registry = Registry(url="http://r:1", properties={"ssl.ca.location": "/nowhere/ca.pem"})
    [found] = registry.findings("input.registry")
    assert (found.level, found.text) == (
        "unknown",
        'input.registry.properties."ssl.ca.location": cannot be loaded here',
    )
    assert found.action == "correct the file, its format or its password"
    with pytest.raises(ConfigurationError, match=r'"ssl\.ca\.location": cannot be loaded here'):
        registry.client("input.registry")


def test_good_properties_pass_and_nothing_connects() -> None:
    good = {"basic.auth.user.info": f"u:{SECRET}", "timeout": "3", "max.retries": 2.0}
    assert Registry(url="http://r:1", properties=good).findings("input.registry") == []
