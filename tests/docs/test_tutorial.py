"""The tutorial's session runs, and prints what the page says."""

from pathlib import Path

import pytest

from tests.broker import Broker
from tests.docs.session import Command, Session, commands, differences

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "README.md"


@pytest.mark.shipped
@pytest.mark.timeout(900)
def test_the_tutorial_prints_what_it_shows(kafka: Broker, tmp_path: Path) -> None:
    """The broker is one of its own; the fixture says whether this machine can have one.

    After a change of an output: .venv/bin/python -m tests.docs.session docs/tutorial/README.md
    """
    session = Session(PAGE.read_text(), tmp_path)
    session.run()
    assert len(session.commands) > 12
    assert [line for command in session.commands for line in differences(command)] == []


def test_the_tutorial_shows_the_commands_of_a_first_day() -> None:
    shown = PAGE.read_text()
    for command in (
        "config init",
        "config check",
        "plan",
        "topics create",
        "worker",
        "status",
        "watch",
        "dashboard",
        "ledger show",
    ):
        assert f"$ susurrus {command} " in shown


BLOCK = """$ first \\
  goes on
12 keys, /a: 5
$ second &
"""


def test_a_block_is_commands_with_their_output() -> None:
    first, second = commands(BLOCK, noisy=False)
    assert (first.text, first.expected) == ("first \\\n  goes on", "12 keys, /a: 5\n")
    assert (second.text, second.expected) == ("second &", "")


@pytest.mark.parametrize(
    ("expected", "printed", "noisy", "alike"),
    [
        ("12 keys in 2026-01-01T00:00:00Z", "7 keys in 2026-11-24T10:00:00Z", False, True),
        ("12 keys", "12 rows", False, False),
        ("a\nb", "a", False, False),
        ("/a  1,317 ███░", "/a  9 █░░░", False, True),
        ("key  visits\n/a 1\n/b 2", "key  visits\n/c 4\n/b 2", True, True),
        ("key  visits\n/a 1", "no keys", True, False),
        ("key\na\nb\n7 keys published", "key\na\n9 keys published", True, True),
        ("key\na\nb\n7 keys published", "key\n9 keys published", True, False),
        ("key\na\nb\n7 keys published", "key\na\nb\nrefused", True, False),
    ],
)
def test_numbers_may_differ_and_words_may_not(expected: str, printed: str, noisy: bool, alike: bool) -> None:
    assert (differences(Command("c", expected, noisy, printed)) == []) == alike
