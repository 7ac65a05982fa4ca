"""The page's files: its own from this package, and plotly's JavaScript from plotly's wheel. Nothing comes from a network."""

import gzip
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Final

PLOTLY: Final = "plotly.min.js"
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True)
class Asset:
    """One file, kept in memory."""

    data: bytes
    content_type: str

    @cached_property
    def etag(self) -> str:
        """Changes with the file."""
        return hashlib.blake2b(self.data, digest_size=12).hexdigest()

    @cached_property
    def compressed(self) -> bytes:
        """The file for clients that take gzip."""
        return gzip.compress(self.data, 6, mtime=0)


NO_PLOTLY: Final = Asset(b"// plotly is not installed\n", _TYPES[".js"])
"""What the page gets then: a script that is missing would be an error in the browser's console."""


def own_assets() -> dict[str, Asset]:
    """The page's files by name."""
    return dict(_own())


def _own() -> Iterator[tuple[str, Asset]]:
    for file in files("susurrus.agents.dashboard").joinpath("page").iterdir():
        kind = _TYPES.get(Path(file.name).suffix)
        if kind is not None:
            yield file.name, Asset(file.read_bytes(), kind)


def plotly_asset() -> Asset | None:
    """Plotly's JavaScript; None where plotly is not installed. Plotly itself is not imported: it would take a second."""
    spec = find_spec("plotly")
    for folder in () if spec is None else spec.submodule_search_locations or ():
        file = Path(folder) / "package_data" / PLOTLY
        if file.is_file():
            return Asset(file.read_bytes(), _TYPES[".js"])
    return None
