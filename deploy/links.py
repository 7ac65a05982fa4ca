"""Links in Markdown that lead somewhere else once the page has left the repository: on the site, on a package index.

    .venv/bin/python deploy/links.py     writes deploy/package-index.md, what a package index shows, from README.md

The address of the repository is `Source` of [project.urls] in pyproject.toml. Without it, such a link becomes plain text: no link
is better than one that leads nowhere.
"""

import re
import sys
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PACKAGE_INDEX: Final = ROOT / "deploy" / "package-index.md"
_FENCED: Final = re.compile(r"^(```.*?^```)", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|mailto:|#)([^)\s]+)\)")


def source_address() -> str | None:
    """Where files of the repository can be seen; None where no address is known."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"].get("urls", {})
    return f"{urls['Source'].rstrip('/')}/blob/main" if "Source" in urls else None


def outside_links_rewritten(text: str, folder: Path, *, inside: Path, address: str | None) -> str:
    """The text with every relative link that leaves the folder ``inside`` made absolute, or plain text without an address.

    folder: where the page is. Text in fences stays as it is.
    """

    def link(found: re.Match[str]) -> str:
        image, words, target = found.groups()
        path, _, _ = target.partition("#")
        place = (folder / path).resolve() if path else folder
        if place.is_relative_to(inside) and not place.is_dir():
            return found.group()
        if place.is_relative_to(inside):  # a folder: its first page
            first = next((name for name in ("README.md", "index.md") if (place / name).exists()), None)
            if first is not None:
                return f"{image}[{words}]({path.rstrip('/')}/{first})"
        if address is None:
            return "" if image else words
        return f"{image}[{words}]({address}/{place.relative_to(ROOT)}{target[len(path) :]})"

    parts = _FENCED.split(text)
    return "".join(part if part.startswith("```") else _LINK.sub(link, part) for part in parts)


def package_index() -> str:
    """README.md as a package index shows it: no relative links."""
    return outside_links_rewritten(
        (ROOT / "README.md").read_text(), ROOT, inside=PACKAGE_INDEX, address=source_address()
    )


if __name__ == "__main__":
    sys.exit(PACKAGE_INDEX.write_text(package_index()) == 0)
