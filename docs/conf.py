"""Sphinx's settings for the documentation's site: `make docs` builds it from these pages, which read well as files, too.

Links between pages lead to pages of the site. A link to a file outside docs/ leads to the repository if its address is known
([project.urls] in pyproject.toml), and is plain text otherwise.
"""

import sys
import tomllib
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent / "deploy"))

from links import outside_links_rewritten, source_address  # noqa: E402  (found by the line above)

PROJECT = tomllib.loads((DOCS.parent / "pyproject.toml").read_text())["project"]

project = "Susurrus"
author = PROJECT["authors"][0]["name"]
copyright = f"2026, {author}. Apache License 2.0"
release = version = PROJECT["version"]

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "index"
exclude_patterns = ["_build", "recipes/*/target"]
suppress_warnings = ["misc.highlighting_failure"]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
nitpicky = False

html_theme = "furo"
html_title = f"Susurrus {release}"
html_static_path = ["images"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"light_css_variables": {"font-stack": "system-ui, sans-serif"}}


def rewrite(app: Any, page: str, source: list[str]) -> None:
    """Called by Sphinx with the Markdown of a page."""
    folder = (DOCS / f"{page}.md").parent
    source[0] = outside_links_rewritten(source[0], folder, inside=DOCS, address=source_address())


def setup(app: Any) -> None:
    """Called by Sphinx at its start."""
    app.connect("source-read", rewrite)
