"""What must hold of a wheel before it is given to anyone: it has both modules, they use only Python's stable interface, and
they run on every machine that the wheel's name promises.

For Linux auditwheel looks at the versions of the symbols that the modules ask of the C library. For macOS deploy/mach_o.py reads
what they ask of the system: another architecture, a newer macOS, a library beside libSystem or a broken signature would show only
on a user's machine.
"""

import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from deploy.mach_o import LibraryFile, read
from deploy.wheel_platforms import Platform

MODULES: Final = ("susurrus/mechanisms/_compiled.abi3.so", "susurrus/topics/_compiled.abi3.so")
MUSL: Final = "libc.so"
"""As zig calls musl, whose loader answers to every name that begins so; auditwheel knows it as libc.musl-x86_64.so.1."""
SYSTEM: Final = "/usr/lib/libSystem.B.dylib"
_PATHS: Final = (b"/root/", b"/home/", b"/Users/", b"/tmp/")
"""What paths of the machine that built would begin with. They are no one's concern, and two builds would differ."""


class Unfit(Exception):
    """Says what is wrong with a wheel."""


def check(wheel: Path, platform: Platform) -> None:
    """Raises Unfit with everything that is wrong."""
    if found := [*problems(wheel, platform)]:
        raise Unfit("; ".join(found))


def problems(wheel: Path, platform: Platform) -> Iterator[str]:
    """One sentence each."""
    if not wheel.name.endswith(f"-cp311-abi3-{platform.tag}.whl"):
        yield f"{wheel.name} is not named for {platform.tag}"
    with zipfile.ZipFile(wheel) as opened:
        compiled = {name: opened.read(name) for name in opened.namelist() if name.endswith((".so", ".dylib"))}
    if set(compiled) != set(MODULES):
        yield f"it has the compiled modules {sorted(compiled)} and not {list(MODULES)}"
    for name, content in compiled.items():
        for path in (*_PATHS, str(Path.cwd()).encode()):
            if path in content:
                yield f"{name} has a path of this machine, {path.decode()}"
        if platform.on_macos:
            yield from (f"{name} {problem}" for problem in on_macos(content, platform))
    if not platform.on_macos:
        yield from on_linux(wheel, platform)
    yield from stable_interface(wheel)


def on_macos(content: bytes, platform: Platform) -> Iterator[str]:
    """What is wrong with one module, as the end of a sentence."""
    try:
        library: LibraryFile = read(content)
    except ValueError as error:
        yield f"cannot be read: {error}"
        return
    architecture = "arm64" if platform.triple.startswith("aarch64") else "x86_64"
    if library.architecture != architecture:
        yield f"is for {library.architecture}, not {architecture}"
    least = tuple(map(int, platform.least.split(".")))
    if library.least_macos != least:
        yield f"asks for macOS {'.'.join(map(str, library.least_macos))}, not {platform.least}"
    if library.libraries != (SYSTEM,):
        yield f"links {', '.join(library.libraries)}, not {SYSTEM} alone"
    if library.signed is False or (library.signed is None and architecture == "arm64"):
        yield "has no valid signature, and macOS would end the process that loads it"


def on_linux(wheel: Path, platform: Platform) -> Iterator[str]:
    """By auditwheel: the oldest C library that has what the modules ask for, and which other libraries they need."""
    musl = platform.triple.endswith("-musl")
    with tempfile.TemporaryDirectory() as nothing:
        # What this machine has by the name of musl's library may be another one, or a text for the linker.
        said = _tool("auditwheel", "show", "--json", *(["--ldpaths", nothing] if musl else []), str(wheel))
    found = json.loads(said[said.index("{") :])
    tag, beside = found["overall_tag"], set(found["external_libs"])
    if musl and beside == {MUSL}:
        tag = found["sym_tag"]
    if tag != platform.tag:
        yield f"auditwheel finds that it is for {tag}, not for {platform.tag}; it needs {sorted(beside)}"


def stable_interface(wheel: Path) -> Iterator[str]:
    """By abi3audit, for the Python that the wheel's name promises."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        _tool("abi3audit", "--strict", "--report", "--output", report.name, str(wheel))
        [audited] = json.loads(Path(report.name).read_text())["specs"].values()
    objects = [each["result"] for each in audited["wheel"]]
    if len(objects) != len(MODULES):
        yield f"abi3audit looked at {len(objects)} modules"
    for each in objects:
        if not each["is_abi3"] or not each["is_abi3_baseline_compatible"] or each["non_abi3_symbols"]:
            yield f"abi3audit: {json.dumps(each)}"


def _tool(name: str, *arguments: str) -> str:
    """Standard output of a program that is installed beside this Python. Raises Unfit where it fails."""
    command = [str(Path(sys.executable).with_name(name)), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unfit((done.stdout + done.stderr).strip())
    return done.stdout
