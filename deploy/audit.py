"""Whether a package that the lock files name has a known security advisory, as pip-audit finds it in PyPI's data or OSV's.

    .venv/bin/python deploy/audit.py      what `make audit-dependencies` runs

All entries of the lock files are asked for, those for other platforms and versions of Python, too. Exit code 1: an advisory that
deploy/advisories.toml does not accept. Exit code 0 and a line in capitals: what could not be asked for. An index may answer without
advisories at all, and pip-audit then finds nothing. So the first question is about a release that has a known one.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

DEPLOY: Final = Path(__file__).parent
ACCEPTED: Final = DEPLOY / "advisories.toml"
KNOWN: Final = ("jinja2", "2.10")
"""A release whose advisories have been known since 2019 (CVE-2019-10906)."""
SERVICES: Final = (("pypi",), ("osv",))
"""Options of pip-audit's -s, the preferred first."""
_MOMENT: Final = 15
"""Seconds to wait for one answer."""


class Unanswered(Exception):
    """No advisories are to be had here; says why in one line."""


@dataclass(frozen=True, slots=True)
class Advisory:
    """One finding. ``names``: the advisory's id and its aliases; ``fixed``: the releases that are without it."""

    package: str
    version: str
    names: tuple[str, ...]
    fixed: tuple[str, ...]

    def __str__(self) -> str:
        known = f"fixed in {', '.join(self.fixed)}" if self.fixed else "no release is without it"
        return f"{self.package}=={self.version}: {', '.join(self.names)}; {known}"


@dataclass(frozen=True, slots=True)
class Accepted:
    """An entry of advisories.toml."""

    package: str
    id: str
    until: date
    reason: str

    def covers(self, advisory: Advisory, today: date) -> bool:
        """Whether it is about this advisory, and not over."""
        same = canonicalize_name(self.package) == canonicalize_name(advisory.package)
        return same and self.id in advisory.names and today <= self.until


def accepted(text: str) -> list[Accepted]:
    """The entries of advisories.toml; raises ValueError for one that lacks something."""
    found = []
    for entry in tomllib.loads(text)["accepted"]:
        if entry.keys() != {"package", "id", "until", "reason"} or not str(entry["reason"]).strip():
            raise ValueError(f"{entry}: an accepted advisory has package, id, until (a date) and a reason")
        if type(entry["until"]) is not date:
            raise ValueError(f"until={entry['until']!r}: must be a date, as in until = 2027-01-31")
        found.append(Accepted(**entry))
    return found


def releases(locks: Iterable[Path]) -> list[tuple[str, str]]:
    """Every name and version that the lock files have, each once."""
    found: dict[tuple[str, str], None] = {}
    for lock in locks:
        for line in lock.read_text().splitlines():
            if line[:1].isalnum():
                requirement = Requirement(line.removesuffix("\\"))
                found[canonicalize_name(requirement.name), str(requirement.specifier).removeprefix("==")] = None
    return list(found)


def rounds(wanted: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """The same in lists that name each package once, for pip-audit refuses two versions of one."""
    left = list(wanted)
    while left:
        once = dict(reversed(left))
        yield list(once.items())
        left = [each for each in left if each not in once.items()]


def ask(service: tuple[str, ...], wanted: Iterable[tuple[str, str]]) -> tuple[list[Advisory], list[str]]:
    """The advisories of these releases, and one line for each that was not found. Raises Unanswered."""
    found, skipped = [], []
    for each in rounds(wanted):
        with tempfile.TemporaryDirectory() as folder:
            asked = Path(folder) / "requirements.txt"
            asked.write_text("".join(f"{name}=={version}\n" for name, version in each))
            told = subprocess.run(
                [
                    *(sys.executable, "-m", "pip_audit", "-r", asked, "--no-deps", "--disable-pip"),
                    *("-s", *service, "--timeout", str(_MOMENT), "--progress-spinner", "off", "--format", "json"),
                    *("--cache-dir", folder),  # what was known yesterday is not asked for
                ],
                capture_output=True,
                text=True,
                check=False,
            )
        try:
            answers: list[dict[str, Any]] = json.loads(told.stdout)["dependencies"]
        except ValueError as error:
            said = told.stderr.strip().splitlines() or ["nothing"]
            raise Unanswered(f"pip-audit -s {' '.join(service)} said: {said[-1]}") from error
        for answer in answers:
            if "skip_reason" in answer:
                skipped.append(f"{answer['name']}: {answer['skip_reason']}")
            for advisory in answer.get("vulns", ()):
                names = (advisory["id"], *sorted(advisory["aliases"]))
                found.append(Advisory(answer["name"], answer["version"], names, tuple(advisory["fix_versions"])))
    return found, skipped


def service_that_answers(services: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """The first one that knows the advisories of KNOWN. Raises Unanswered, which says what each answered instead."""
    said = []
    for service in services:
        try:
            found, skipped = ask(service, [KNOWN])
        except Unanswered as error:
            said.append(str(error))
            continue
        if found:
            return service
        said.append(
            f"pip-audit -s {' '.join(service)} knows no advisory of {'=='.join(KNOWN)}"
            + "".join(f" ({each})" for each in skipped)
        )
    raise Unanswered("; ".join(said))


def audit(locks: Iterable[Path], services: Iterable[tuple[str, ...]], entries: list[Accepted], today: date) -> int:
    """Ask, print what was found, and return the exit code."""
    wanted = releases(locks)
    try:
        found, skipped = ask(service_that_answers(services), wanted)
    except Unanswered as error:
        print(f"DEPENDENCIES NOT AUDITED: no advisories are to be had here. {error}", file=sys.stderr)
        return 0
    for each in skipped:
        print(f"NOT AUDITED: {each}", file=sys.stderr)
    refused = [advisory for advisory in found if not any(each.covers(advisory, today) for each in entries)]
    for advisory in refused:
        print(f"{advisory}: make lock LOCK_ARGS='--upgrade-package {advisory.package}'", file=sys.stderr)
    for entry in entries:
        if not any(entry.covers(advisory, today) for advisory in found):
            print(
                f"{entry.package} {entry.id} until={entry.until}: is over or not found; take it out of {ACCEPTED.name}"
            )
    print(f"audited={len(wanted) - len(skipped)} advisories={len(found)} accepted={len(found) - len(refused)}")
    return 1 if refused else 0


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--osv-url", help="ask this OSV service alone, and not PyPI")
    parser.add_argument("locks", nargs="*", type=Path, default=sorted(DEPLOY.glob("*.lock")))
    options = parser.parse_args(arguments)
    services = SERVICES if options.osv_url is None else (("osv", "--osv-url", options.osv_url),)
    return audit(options.locks, services, accepted(ACCEPTED.read_text()), datetime.now(UTC).date())


if __name__ == "__main__":
    sys.exit(main())
