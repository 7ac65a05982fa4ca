"""One distribution: the packages that pyproject.toml lists are what the folders hold; and the crates of the compiled loops."""

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PYPROJECT["tool"]["setuptools"]
PACKAGES = ["agents", "mechanisms", "topics"]
CRATES = ["mechanisms", "topics"]


def files(package: str) -> set[Path]:
    """What an installation without the compiled loops has of a package."""
    found = (ROOT / package).rglob("*")
    return {
        file
        for file in found
        if file.is_file() and not {"__pycache__", "rust"} & set(file.parts) and not file.name.startswith("_compiled.")
    }


def name_of(folder: Path) -> str:
    """The name of a package: what package-dir says, otherwise its place."""
    path = folder.relative_to(ROOT)
    renamed = {where: name for name, where in SETUPTOOLS["package-dir"].items()}
    return renamed.get(path.as_posix(), ".".join(["susurrus", *path.parts]))


def folders(package: str) -> set[str]:
    return {name_of(file.parent) for file in files(package)}


def test_every_folder_is_a_listed_package() -> None:
    assert set(SETUPTOOLS["packages"]) == set().union(*(folders(package) for package in PACKAGES))


def test_the_list_is_sorted() -> None:
    assert SETUPTOOLS["packages"] == sorted(SETUPTOOLS["packages"])


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_says_that_it_is_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").exists()
    assert "py.typed" in SETUPTOOLS["package-data"][f"susurrus.{package}"]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_file_that_is_not_code_is_package_data(package: str) -> None:
    for file in files(package):
        patterns = SETUPTOOLS["package-data"].get(name_of(file.parent), [])
        assert file.suffix == ".py" or any(file.match(pattern) for pattern in patterns), file


@pytest.mark.parametrize("package", CRATES)
def test_a_crate_has_the_projects_version_and_license(package: str) -> None:
    """Also in its lock, or cargo --locked refuses it."""
    crate = tomllib.loads((ROOT / package / "rust" / "Cargo.toml").read_text())["package"]
    locked = tomllib.loads((ROOT / package / "rust" / "Cargo.lock").read_text())["package"]
    assert crate["name"] == f"susurrus-{package}"
    assert (crate["version"], crate["license"]) == (PYPROJECT["project"]["version"], PYPROJECT["project"]["license"])
    assert [each["version"] for each in locked if each["name"] == crate["name"]] == [crate["version"]]


@pytest.mark.parametrize("package", CRATES)
def test_every_other_crate_is_locked_by_its_checksum(package: str) -> None:
    locked = tomllib.loads((ROOT / package / "rust" / "Cargo.lock").read_text())["package"]
    others = [each for each in locked if each["name"] != f"susurrus-{package}"]
    assert {"pyo3"} <= {each["name"] for each in others}
    assert all(each["source"] == "registry+https://github.com/rust-lang/crates.io-index" for each in others)
    assert all(len(each["checksum"]) == 64 for each in others)
