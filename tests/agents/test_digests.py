"""The configuration digests are pinned: another digest makes running pipelines refuse the worker."""

import json
import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "golden"
STORED = json.loads((FOLDER / "digests.json").read_text())
NOW = runpy.run_path(str(FOLDER / "make_digests.py"))["digests"]()


def test_every_configuration_is_pinned() -> None:
    assert list(NOW) == list(STORED)


def test_no_two_digests_are_the_same_but_those_of_one_configuration() -> None:
    by_digest: dict[str, list[str]] = {}
    for name, digest in NOW.items():
        by_digest.setdefault(digest, []).append(name)
    assert [names for names in by_digest.values() if len(names) > 1] == [["strategy toeplitz", "clock broker"]]


@pytest.mark.parametrize("name", STORED)
def test_is_the_digest_as_ever(name: str) -> None:
    assert NOW[name] == STORED[name]
