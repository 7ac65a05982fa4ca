"""The documentation's site is built without a warning, has every page, and no link that leads nowhere."""

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

from deploy.links import PACKAGE_INDEX, ROOT, outside_links_rewritten, package_index

PAGES = sorted(path.relative_to(ROOT / "docs") for path in ROOT.glob("docs/**/*.md") if "target" not in path.parts)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, as `make docs` builds it: a warning is an error, and so is a page that no table of contents has."""
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", ROOT / "docs", target]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return target


@pytest.mark.shipped
def test_every_page_is_in_the_site(site: Path) -> None:
    assert len(PAGES) > 40
    assert [page for page in PAGES if not (site / page.with_suffix(".html")).exists()] == []


@pytest.mark.shipped
def test_links_of_the_site_stay_in_it_or_are_whole_addresses(site: Path) -> None:
    broken = []
    for page in site.rglob("*.html"):
        for target in re.findall(r'(?:href|src)="([^"#]+)', page.read_text()):
            if not re.match(r"https?:|data:|mailto:", target):
                place = page.parent / unquote(target.partition("?")[0])
                if not place.exists():
                    broken.append(f"{page.relative_to(site)}: {target}")
    assert not broken


def test_the_package_index_shows_the_readme() -> None:
    """After a change of README.md: .venv/bin/python deploy/links.py"""
    assert PACKAGE_INDEX.read_text() == package_index()


def test_the_package_index_shows_no_relative_link() -> None:
    text = re.sub(r"^```.*?^```", "", PACKAGE_INDEX.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert [target for target in re.findall(r"\]\(([^)]+)\)", text) if not target.startswith(("https://", "#"))] == []


@pytest.mark.parametrize(
    ("text", "address", "expected"),
    [
        ("see [limits](docs/known-limits.md)", None, "see limits"),
        ("see [limits](docs/known-limits.md#a)", "https://x/blob/main", "see [limits](https://x/blob/main/docs/known-limits.md#a)"),
        ("![a picture](docs/images/x.png)", None, ""),
        ("[paper](https://example.org/a)", None, "[paper](https://example.org/a)"),
        ("```\n[kept](docs/x.md)\n```", None, "```\n[kept](docs/x.md)\n```"),
    ],
)  # fmt: skip
def test_a_link_that_leaves_is_absolute_or_text(text: str, address: str | None, expected: str) -> None:
    assert outside_links_rewritten(text, ROOT, inside=ROOT / "nowhere", address=address) == expected


def test_a_link_to_a_folder_leads_to_its_first_page() -> None:
    found = outside_links_rewritten(
        "[recipes](recipes) and [code](../agents)", ROOT / "docs", inside=ROOT / "docs", address=None
    )
    assert found == "[recipes](recipes/README.md) and code"
