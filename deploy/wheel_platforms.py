"""The platforms that wheels with the compiled loops are made for, and which Rust compiler of this machine can build for each.

deploy/wheels.py builds. The compiler runs here, whatever the platform is; zig links with the C library of the platform, which it
brings. What is left to find is Rust's standard library of the platform: rustup installs it (`rustup target add`), or it is built
from its sources (`rustup component add rust-src`, or Debian's rust-web-src beside its own compiler).
"""

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DEBIANS: Final = "/usr/bin/rustc"
"""The compiler that belongs to Debian's sources; rustup's own comes first in the path and has no sources unless asked."""


@dataclass(frozen=True, slots=True)
class Platform:
    """One wheel. tag: as its file is named. triple: Rust's name. least: of glibc (with it the linker is told what to link to) or of
    macOS."""

    tag: str
    triple: str
    least: str = ""

    @property
    def target(self) -> str:
        """What cargo-zigbuild calls it."""
        return f"{self.triple}.{self.least}" if self.triple.endswith("-gnu") else self.triple

    @property
    def on_macos(self) -> bool:
        return "-apple-" in self.triple


# glibc 2.17 and macOS 10.12 and 11.0 are the oldest that Rust supports; musl is the one of Alpine 3.14 and later.
PLATFORMS: Final = (
    Platform("manylinux_2_17_x86_64", "x86_64-unknown-linux-gnu", "2.17"),
    Platform("manylinux_2_17_aarch64", "aarch64-unknown-linux-gnu", "2.17"),
    Platform("musllinux_1_2_x86_64", "x86_64-unknown-linux-musl"),
    Platform("musllinux_1_2_aarch64", "aarch64-unknown-linux-musl"),
    Platform("macosx_10_12_x86_64", "x86_64-apple-darwin", "10.12"),
    Platform("macosx_11_0_arm64", "aarch64-apple-darwin", "11.0"),
)


def native() -> Platform:
    """This machine's. Raises LookupError where no wheel is made for it."""
    machine = {"arm64": "aarch64", "AMD64": "x86_64"}.get(platform.machine(), platform.machine())
    if sys.platform == "darwin":
        triple = f"{machine}-apple-darwin"
    else:
        triple = f"{machine}-unknown-linux-{'gnu' if platform.libc_ver()[0] == 'glibc' else 'musl'}"
    for each in PLATFORMS:
        if each.triple == triple:
            return each
    raise LookupError(f"no wheel is made for {triple}: {', '.join(each.triple for each in PLATFORMS)}")


@dataclass(frozen=True, slots=True)
class Compiler:
    """One Rust compiler of this machine. path: as it is called. version: name and number. sysroot: where its libraries are."""

    path: str
    version: str
    sysroot: Path

    def has_library(self, triple: str) -> bool:
        """Whether the standard library of a platform is installed."""
        return any((self.sysroot / "lib" / "rustlib" / triple / "lib").glob("libstd-*"))

    @property
    def sources(self) -> Path:
        """Where the standard library's sources are, if they are."""
        return self.sysroot / "lib" / "rustlib" / "src" / "rust" / "library"

    @property
    def has_sources(self) -> bool:
        return (self.sources / "std" / "Cargo.toml").is_file()


def compilers() -> Iterator[Compiler]:
    """Those that run here, the one that cargo would call first."""
    found = set()
    for path in (os.environ.get("RUSTC", "rustc"), DEBIANS):
        try:
            version, sysroot = (_ask(path, *what) for what in (("--version",), ("--print", "sysroot")))
        except (OSError, subprocess.CalledProcessError):
            continue
        if sysroot not in found:
            found.add(sysroot)
            yield Compiler(path, " ".join(version.split()[:2]), Path(sysroot))


def _ask(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@dataclass(frozen=True, slots=True)
class Way:
    """How a platform is built: by which compiler, and whether its standard library is built, too."""

    compiler: Compiler
    from_sources: bool

    def __str__(self) -> str:
        library = "built from its sources" if self.from_sources else "installed"
        return f"{self.compiler.version}, its standard library {library}"


def way(triple: str, compilers: list[Compiler]) -> Way | None:
    """The way to build for a platform, if there is one. An installed standard library goes before one from sources."""
    for compiler in compilers:
        if compiler.has_library(triple):
            return Way(compiler, from_sources=False)
    for compiler in compilers:
        if compiler.has_sources:
            return Way(compiler, from_sources=True)
    return None


def remedy(triple: str) -> str:
    """What to install where there is no way to build for a platform."""
    return (
        f"no Rust compiler here has the standard library of {triple}, or its sources: run `rustup target add {triple}` or "
        "`rustup component add rust-src`, or install Debian's packages rustc-web and rust-web-src"
    )
