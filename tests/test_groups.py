"""Groups of tests: without them every process of a run starts every kind of broker, and no test would fail."""

import pytest


def test_xdist_has_read_the_group_of_this_test(request: pytest.FixtureRequest) -> None:
    """The names of grouped tests end in ``@group``. conftest.py puts the tests of a file that needs no broker into a group."""
    grouped = request.config.getoption("dist", "no") == "loadgroup"
    if hasattr(request.config, "workerinput"):
        grouped = request.config.getoption("loadgroup")
    assert request.node.nodeid.endswith(f"@{request.node.location[0]}") == grouped
