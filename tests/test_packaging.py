"""One distribution, three packages: what pyproject.toml lists is what the folders hold."""

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PYPROJECT["tool"]["setuptools"]
PACKAGES = ["agents", "mechanisms", "topics"]


def files(package: str) -> set[Path]:
    found = (ROOT / package).rglob("*")
    return {file for file in found if file.is_file() and "__pycache__" not in file.parts}


def name_of(folder: Path) -> str:
    return ".".join(["susurrus", *folder.relative_to(ROOT).parts])


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
