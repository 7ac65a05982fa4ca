"""Builds the two optional compiled modules (decision 34) into the package; all else about it stands in pyproject.toml.

Each is a Rust crate beside the Python code that it speeds up. Without cargo, with one that is too old, or without crates.io the
package is built in pure Python, which computes the same. $SUSURRUS_BUILD_COMPILED=1 makes that an error (continuous integration
and deploy/wheels.py do), =0 does not try. build/compiled/outcome.txt has one line about what was done.

$SUSURRUS_BUILD_TARGET names another machine to build for, as cargo-zigbuild does: aarch64-unknown-linux-gnu.2.17. Only
deploy/wheels.py sets it, and what else such a build needs.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

CRATES = {"susurrus.mechanisms._compiled": Path("mechanisms/rust"), "susurrus.topics._compiled": Path("topics/rust")}
BUILT = Path("build/compiled").absolute()
# Commands for whose result the modules are needed; asked for metadata or a source distribution, nothing is compiled.
BUILDING = {"bdist_wheel", "build", "build_ext", "develop", "editable_wheel", "install"}
CARGO = os.environ.get("CARGO", "cargo")
TARGET = os.environ.get("SUSURRUS_BUILD_TARGET", "")
MISSING = "no cargo that runs was found"


class NotBuilt(Exception):
    """Says why there are no compiled modules, in one line."""


class TakeBuilt(build_ext):
    """Puts what cargo made where setuptools would put what a C compiler makes."""

    def build_extension(self, ext: Extension) -> None:
        """Copy one module."""
        target = Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        new = target.with_suffix(".new")  # another process may run the old one: its file must not change
        shutil.copy(library(ext.name), new)
        new.replace(target)


def library(module: str) -> Path:
    """The file that cargo makes of a module's crate."""
    suffix = ".dylib" if for_macos() else ".so"
    folder = target_of(module) / re.sub(r"\.[\d.]+$", "", TARGET) / "release"
    return folder / f"lib{tomllib.loads((CRATES[module] / 'Cargo.toml').read_text())['lib']['name']}{suffix}"


def target_of(module: str) -> Path:
    """Where cargo keeps what it made, so that the next build takes seconds. One folder for each crate, so that both are built at
    once; for another machine one folder, so that what both crates use, which may be all of Rust's library, is built once."""
    return Path(os.environ.get("CARGO_TARGET_DIR") or BUILT, "" if TARGET else CRATES[module].parent.name)


def for_macos() -> bool:
    """Whether the machine that will run the modules has macOS."""
    return "-apple-" in TARGET if TARGET else sys.platform == "darwin"


def compile_all() -> str:
    """Build every crate. Returns one line about the compiler. Raises NotBuilt."""
    if sys.platform == "win32" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise NotBuilt("they are for Linux and macOS, and for a Python with its lock")
    version = compiler()
    environment = os.environ | {
        # The stable interface needs no interpreter; naming none, builds in changing environments share their work.
        "PYO3_NO_PYTHON": "1",
        "PYO3_BUILD_EXTENSION_MODULE": "1",
        "CARGO_NET_RETRY": os.environ.get("CARGO_NET_RETRY", "1"),
        # What a module says of itself: `susurrus --version`, preflight and a worker show it.
        "SUSURRUS_BUILT_BY": f"{rustc()} for {TARGET}" if TARGET else rustc(),
    }
    processes = {}
    for module, crate in CRATES.items():
        command = [CARGO, "rustc"]
        if TARGET:
            command = ["cargo-zigbuild", "rustc", "--target", TARGET]
            # Each has its own folder for the scripts that call zig: one that another process writes at this moment cannot be run.
            cache = Path(os.environ.get("CARGO_ZIGBUILD_CACHE_DIR") or BUILT / "zigbuild", CRATES[module].parent.name)
            environment["CARGO_ZIGBUILD_CACHE_DIR"] = str(cache)
        command += ["--lib", "--crate-type", "cdylib", "--locked", "--release", "--quiet"]
        command += ["--manifest-path", str(crate / "Cargo.toml"), "--target-dir", str(target_of(module))]
        if for_macos():
            command += ["--", "-C", "link-arg=-undefined", "-C", "link-arg=dynamic_lookup"]
        processes[module] = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    said = {module: process.communicate()[1] for module, process in processes.items()}
    for module, process in processes.items():
        if process.returncode:
            sys.stderr.write(said[module])
            errors = [line for line in said[module].splitlines() if line.startswith("error")]
            raise NotBuilt(f"{CRATES[module]}: {errors[0] if errors else f'exit code {process.returncode}'}")
        if not library(module).is_file():
            raise NotBuilt(f"{library(module)} is not there; is another target configured for cargo?")
    return version


def compiler() -> str:
    """Name and version of cargo. Raises NotBuilt where it is missing or older than a crate needs."""
    try:
        said = subprocess.run([CARGO, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        raise NotBuilt(MISSING) from None
    found = re.match(r"cargo (\d+)\.(\d+)", said)
    if found is None or tuple(map(int, found.groups())) < max(needed()):
        raise NotBuilt(f"{' '.join(said.split()[:2])} is too old")
    return " ".join(said.split()[:2])


def rustc() -> str:
    """Name and version of the compiler that cargo calls."""
    try:
        command = [os.environ.get("RUSTC", "rustc"), "--version"]
        return " ".join(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[:2])
    except (OSError, subprocess.CalledProcessError):
        return "rustc"  # cargo is configured with a path of its own


def needed() -> Iterator[tuple[int, ...]]:
    """The Rust version of each crate."""
    for crate in CRATES.values():
        package = tomllib.loads((crate / "Cargo.toml").read_text())["package"]
        yield tuple(map(int, package["rust-version"].split(".")))


def modules() -> list[Extension]:
    """What the distribution holds beside Python code: all of CRATES, or nothing."""
    wish = os.environ.get("SUSURRUS_BUILD_COMPILED", "")
    if not BUILDING & set(sys.argv):
        return []
    try:
        if wish == "0":
            raise NotBuilt("SUSURRUS_BUILD_COMPILED=0")
        outcome = f"Compiled loops: built by {compile_all()}."
        found = [Extension(name, [], py_limited_api=True) for name in CRATES]
    except NotBuilt as reason:
        least = ".".join(map(str, max(needed())))
        outcome = f"NO COMPILED LOOPS ({reason}): pure Python computes the same, more slowly. Rust {least} or later builds them."
        if wish == "1":
            raise SystemExit(f"{outcome} SUSURRUS_BUILD_COMPILED=1 asks for them.") from None
        found = []
    BUILT.mkdir(parents=True, exist_ok=True)
    (BUILT / "outcome.txt").write_text(outcome + "\n")
    print(outcome, file=sys.stderr)
    return found


if __name__ == "__main__":
    found = modules()
    setup(
        ext_modules=found,
        cmdclass={"build_ext": TakeBuilt},
        # One wheel for every Python from 3.11 on; without the modules, one for every machine.
        options={"bdist_wheel": {"py_limited_api": "cp311"}} if found else {},
    )
