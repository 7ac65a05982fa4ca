"""One distribution, three packages: what pyproject.toml lists is what the folders hold."""

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PYPROJECT["tool"]["setuptools"]
PACKAGES = ["agents", "mechanisms", "topics"]


def folders(package: str) -> set[str]:
    return {"susurrus." + ".".join(file.parent.relative_to(ROOT).parts) for file in (ROOT / package).rglob("*.py")}


def test_every_folder_with_code_is_a_listed_package() -> None:
    assert set(SETUPTOOLS["packages"]) == set().union(*(folders(package) for package in PACKAGES))


def test_the_list_is_sorted() -> None:
    assert SETUPTOOLS["packages"] == sorted(SETUPTOOLS["packages"])


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_says_that_it_is_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").exists()
    assert "py.typed" in SETUPTOOLS["package-data"][f"susurrus.{package}"]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_file_that_is_not_code_is_package_data(package: str) -> None:
    patterns = SETUPTOOLS["package-data"][f"susurrus.{package}"]
    shipped = {file for pattern in patterns for file in (ROOT / package).glob(pattern)}
    files = {file for file in (ROOT / package).rglob("*") if file.is_file() and "__pycache__" not in file.parts}
    assert {file for file in files if file.suffix != ".py"} <= shipped
