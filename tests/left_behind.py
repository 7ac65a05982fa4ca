"""What a program leaves behind when it is killed: processes, by their ids."""

from pathlib import Path

from susurrus.agents.broker.leash import birth
from susurrus.agents.broker.process import command_line

ROOT = Path(__file__).resolve().parents[1]


def gone(pid: int, born: str | None) -> bool:
    """Whether the process that was born then has ended."""
    return birth(pid) != born


def children(pid: int, word: str) -> list[int]:
    """The children of a process whose command line has this word among its arguments; Linux."""
    found = []
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(each.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == pid and word in command_line(int(each.parent.name)):
            found.append(int(each.parent.name))
    return found
