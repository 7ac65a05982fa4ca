"""The lock files: all that pyproject.toml asks for is in them, in versions that it allows, with hashes and without addresses."""

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
BUILD: list[str] = PYPROJECT["build-system"]["requires"]
IMAGE = [each for each in PYPROJECT["dependency-groups"]["image"] if isinstance(each, str)]
DEV = [each for each in EXTRAS["dev"] if not each.startswith("susurrus[")]
LOCKS = {
    "requirements.lock": [*PROJECT["dependencies"], *EXTRAS["registry"]],
    "requirements-dev.lock": [
        *PROJECT["dependencies"],
        *DEV,
        *(each for extra in sorted(EXTRAS.keys() - {"dev", "benchmarks"}) for each in EXTRAS[extra]),
        *BUILD,
    ],
    "requirements-build.lock": [*BUILD, *IMAGE],
    "requirements-wheels.lock": [
        *BUILD,
        *(each for each in PYPROJECT["dependency-groups"]["wheels"] if isinstance(each, str)),
    ],
    "requirements-dashboard.lock": PYPROJECT["dependency-groups"]["charts"],
}
PLATFORMS = [
    {"python_version": version, "python_full_version": f"{version}.0", "sys_platform": system, "platform_system": name}
    for version in ("3.11", "3.12", "3.13", "3.14")
    for system, name in (("linux", "Linux"), ("darwin", "Darwin"))
]


def read(text: str) -> list[Requirement]:
    """The requirements of a lock file, each one version. Raises ValueError where one has another form or lacks a hash."""
    found = []
    for entry in re.split(r"\n(?=\S)", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).strip()):
        line, *hashes = (part.strip() for part in entry.split("\\\n"))
        requirement = Requirement(line)
        if not re.fullmatch(r"==[^,*]+", str(requirement.specifier)):
            raise ValueError(f"{line} is not one version")
        if not hashes or not all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each) for each in hashes):
            raise ValueError(f"{line} has no hash, or something else beside it")
        found.append(requirement)
    return found


def missing(asked: list[str], locked: list[Requirement]) -> Iterator[str]:
    """What a platform would not find, or find in a version that is not allowed; one sentence each."""
    for platform in PLATFORMS:
        environment = {name: str(value) for name, value in (default_environment() | platform).items()}
        versions = {
            canonicalize_name(each.name): str(each.specifier).removeprefix("==")
            for each in locked
            if each.marker is None or each.marker.evaluate(environment)
        }
        for wanted in map(Requirement, asked):
            if wanted.marker is not None and not wanted.marker.evaluate(environment):
                continue
            found = versions.get(canonicalize_name(wanted.name))
            where = f"on Python {platform['python_version']}, {platform['platform_system']}"
            if found is None:
                yield f"{wanted} is not locked {where}: run make lock"
            elif not wanted.specifier.contains(found, prereleases=True):
                yield f"{wanted} is locked as {found} {where}: run make lock"


@pytest.mark.parametrize("name", LOCKS)
def test_the_lock_fits_what_is_asked_for(name: str) -> None:
    locked = read((ROOT / "deploy" / name).read_text())
    assert list(missing(LOCKS[name], locked)) == []


def test_a_lock_that_does_not_fit_is_reported() -> None:
    hashes = f"    --hash=sha256:{'0' * 64}\n"
    locked = read(f"# made\nfirst==1.2 \\\n{hashes}second==2.0 ; sys_platform == 'linux' \\\n{hashes}")
    assert list(missing(["first>=1", "second ; sys_platform == 'linux'"], locked)) == []
    assert len(list(missing(["first>=1.3"], locked))) == len(PLATFORMS)
    assert len(list(missing(["second"], locked))) == len(PLATFORMS) / 2
    with pytest.raises(ValueError, match="hash"):
        read("first==1.2\n")
    with pytest.raises(ValueError, match="one version"):
        read(f"first>=1.2 \\\n{hashes}")


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-build.lock", "requirements-dashboard.lock"])
def test_the_image_has_the_versions_that_are_tested(name: str) -> None:
    tested, used = (
        {(each.name, str(each.specifier)) for each in read((ROOT / "deploy" / lock).read_text())}
        for lock in ("requirements-dev.lock", name)
    )
    assert used <= tested


@pytest.mark.parametrize("asked", ["aiokafka", *(each for each in EXTRAS["registry"] if "[" in each)])
def test_what_locked_packages_ask_for_is_locked_too(asked: str) -> None:
    """As far as the packages that are installed here tell."""
    wanted = Requirement(asked)
    own = [Requirement(each) for each in requires(wanted.name) or ()]
    needed = [
        str(each).partition(";")[0]
        for each in own
        if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in ("", *wanted.extras))
    ]
    assert len(needed) > len(wanted.extras)
    assert list(missing(needed, read((ROOT / "deploy" / "requirements.lock").read_text()))) == []


def test_no_tool_holds_the_image_to_an_old_version() -> None:
    """What a development tool refuses in vain: uv writes the lock by these requirements, and pip installs it as it is."""
    overrides: list[str] = PYPROJECT["tool"]["uv"]["override-dependencies"]
    for name in ("requirements.lock", "requirements-dev.lock"):
        assert list(missing(overrides, read((ROOT / "deploy" / name).read_text()))) == []
    assert (
        "pip install --quiet --disable-pip-version-check --no-deps --require-hashes" in (ROOT / "Makefile").read_text()
    )


def test_the_tools_extra_repeats_no_other() -> None:
    (own,) = (Requirement(each) for each in EXTRAS["dev"] if each.startswith("susurrus["))
    assert own.extras == EXTRAS.keys() - {"dev", "benchmarks"}
    others = {Requirement(each).name for name in own.extras for each in EXTRAS[name]}
    assert not others & {Requirement(each).name for each in DEV}
    for name in LOCKS:
        assert "susurrus" not in {each.name for each in read((ROOT / "deploy" / name).read_text())}


@pytest.mark.parametrize("name", LOCKS)
def test_no_address_of_a_package_host_is_written_down(name: str) -> None:
    text = (ROOT / "deploy" / name).read_text()
    assert not re.search(r"https?://|--(extra-)?index-url|--find-links|--trusted-host| @ ", text)


def test_the_images_charts_are_those_of_the_extra() -> None:
    assert PYPROJECT["dependency-groups"]["charts"] == EXTRAS["dashboard"]


def test_what_builds_is_what_is_declared() -> None:
    assert PYPROJECT["dependency-groups"]["build"] == BUILD


def test_the_image_is_built_from_the_locks_alone() -> None:
    """Whatever pip fetches is named by a lock file, and the build's context has these files."""
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text()
    installs = re.findall(r"pip (?:--python \S+ )?(?:install|wheel) ([^&\n]*)", dockerfile.replace("\\\n", " "))
    assert len(installs) == 5
    assert all("--require-hashes -r deploy/" in each or "--no-deps" in each for each in installs), installs
    assert all(
        "--no-index" in each or "--no-build-isolation" in each for each in installs if "--require-hashes" not in each
    ), installs
    context = (ROOT / ".dockerignore").read_text().splitlines()
    assert {f"!deploy/{name}" for name in LOCKS if "dev" not in name} <= set(context)
