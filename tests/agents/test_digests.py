"""The configuration digests are pinned: another digest makes running pipelines refuse the worker."""

import json
import runpy
from pathlib import Path

import pytest

from susurrus.agents.config.settings import Settings
from susurrus.topics import ledger

FOLDER = Path(__file__).parents[1] / "golden"
STORED = json.loads((FOLDER / "digests.json").read_text())
MAKER = runpy.run_path(str(FOLDER / "make_digests.py"))
NOW = MAKER["digests"]()


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


@pytest.mark.parametrize(("name", "settings"), MAKER["configurations"]().items())
def test_a_configuration_differs_in_no_field_from_itself_in_the_ledger(name: str, settings: Settings) -> None:
    kept = ledger.Config(digest=NOW[name], fields=settings.published_fields())
    read = ledger.decode(*ledger.encode(kept))
    assert isinstance(read, ledger.Config)
    assert ledger.changed_fields(read, settings.published_fields()) == []
