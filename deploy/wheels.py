"""`make wheels`: the source distribution, and a wheel with the compiled loops for every platform that this machine can build for.

    make wheels                                          all of deploy/wheel_platforms.py, into dist/
    make wheels WHEELS_ARGS="--only native"              this machine's alone; a failure if it cannot be built

setup.py calls cargo through cargo-zigbuild, whose linker zig brings the C libraries of all platforms. Each wheel is made from a
fresh copy of the source distribution, so that no file of another build slips in, and is looked at (deploy/wheel_checks.py) before
it comes into the folder. Two builds of the same commit with the same compiler are the same bytes: times are
$SOURCE_DATE_EPOCH (the commit's, unless it is set), and paths of this machine are replaced.
"""

import argparse
import gzip
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from deploy.wheel_checks import Unfit, check
from deploy.wheel_platforms import PLATFORMS, Platform, Way, compilers, native, remedy, way

ROOT: Final = Path(__file__).parents[1]
SOURCES: Final = ("agents", "mechanisms", "topics", "deploy/package-index.md")
SOURCES_TOO: Final = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE")
WORK: Final = ROOT / "build" / "wheels"
_EARLIEST: Final = 315_532_800
"""1980: a zip file knows nothing earlier."""


class NotMade(Exception):
    """Says why one wheel was not made."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 where a build fails, or where one cannot be built that --only names."""
    parser = argparse.ArgumentParser(prog="make wheels", description=__doc__.splitlines()[0] if __doc__ else None)
    tags = [each.tag for each in PLATFORMS]
    parser.add_argument("--only", action="append", default=[], choices=["native", *tags], metavar="PLATFORM")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    asked = parser.parse_args(arguments)
    chosen = {native().tag if name == "native" else name for name in asked.only} or set(tags)
    os.umask(0o022)
    os.environ["SOURCE_DATE_EPOCH"] = str(epoch())
    asked.out.mkdir(parents=True, exist_ok=True)
    source = source_distribution(asked.out)
    print(f"made   {source}", flush=True)
    failed, missing = [], []
    here = list(compilers())
    for platform in PLATFORMS:
        if platform.tag not in chosen:
            continue
        if (found := way(platform.triple, here)) is None:
            missing.append(platform)
            continue
        try:
            print(f"made   {make(platform, found, source, asked.out)}: {found}", flush=True)
        except (NotMade, Unfit) as problem:
            failed.append(platform)
            print(f"FAILED {platform.tag}: {problem}", flush=True)
    for platform in missing:
        print(f"NOT BUILT {platform.tag}: {remedy(platform.triple)}")
    return 1 if failed or (missing and asked.only) else 0


def epoch() -> int:
    """The time that files in the archives have, in seconds: $SOURCE_DATE_EPOCH, or that of the commit; 1980 without either."""
    if wish := os.environ.get("SOURCE_DATE_EPOCH"):
        return max(int(wish), _EARLIEST)
    try:
        command = ["git", "log", "-1", "--format=%ct"]
        said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return _EARLIEST
    return max(int(said), _EARLIEST)


def source_distribution(out: Path) -> Path:
    """Made from a copy of the sources, in an order and with times that do not depend on this machine."""
    copy = fresh(WORK / "sources")
    for name in SOURCES_TOO:
        shutil.copy(ROOT / name, copy)
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "target", "_compiled*.so")
            )
        else:
            (copy / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    made = fresh(WORK / "sdist")
    build = f"from setuptools import build_meta; build_meta.build_sdist({str(made)!r})"
    run([sys.executable, "-c", build], cwd=copy, environment={})
    [archive] = made.glob("*.tar.gz")
    unpacked = unpack(archive, made / "unpacked")
    target = out / archive.name
    with gzip.GzipFile(target, "wb", mtime=epoch()) as compressed, tarfile.open(fileobj=compressed, mode="w") as tar:
        for file in sorted(each for each in unpacked.rglob("*") if each.is_file()):
            with file.open("rb") as opened:
                entry = tar.gettarinfo(arcname=str(file.relative_to(unpacked.parent)), fileobj=opened)
                entry.mtime, entry.mode, entry.uid, entry.gid, entry.uname, entry.gname = epoch(), 0o644, 0, 0, "", ""
                tar.addfile(entry, opened)
    return target


def make(platform: Platform, how: Way, source: Path, out: Path) -> Path:
    """One wheel, checked. Raises NotMade, or Unfit where a check fails."""
    folder = fresh(WORK / platform.tag)
    unpacked = unpack(source, folder / "source")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-index",
    ]
    command += ["--no-build-isolation", f"--config-settings=--build-option=--plat-name={platform.tag}"]
    command += ["--wheel-dir", str(folder), str(unpacked)]
    run(command, cwd=unpacked, environment=environment_of(platform, how, unpacked))
    [wheel] = folder.glob("*.whl")
    check(wheel, platform)
    return Path(shutil.move(wheel, out / wheel.name))


def environment_of(platform: Platform, how: Way, source: Path) -> dict[str, str]:
    """What setup.py and cargo are told beyond this process's own environment."""
    home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    flags = [
        # Messages of a panic name files; the machine that built them is no one's concern, and differs.
        f"--remap-path-prefix={source}=/susurrus",
        f"--remap-path-prefix={home}=/cargo",
        f"--remap-path-prefix={how.compiler.sources}=/rust",
        f"--remap-path-prefix={how.compiler.sources.resolve()}=/rust",
    ]
    environment = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "CARGO_TARGET_DIR": str(WORK / "cargo"),
        # Beside the checkout's other files: in the home folder, a second build at the same moment makes the same links, and fails.
        "CARGO_ZIGBUILD_CACHE_DIR": str(WORK / "zigbuild"),
        "CARGO_INCREMENTAL": "0",
        "RUSTC": how.compiler.path,
        "SUSURRUS_BUILD_COMPILED": "1",
        "SUSURRUS_BUILD_TARGET": platform.target,
    }
    if platform.triple.endswith("-musl"):
        flags.append("-Ctarget-feature=-crt-static")  # a module for a Python that is itself linked to musl
    if platform.on_macos:
        # zig's linker signs what it links, and macOS runs nothing for arm64 without a signature: so it strips, too, instead of
        # rustc afterwards. Only libSystem is used of what the standard library names.
        name = "-Wl,-install_name,@rpath/_compiled.abi3.so"
        flags += [f"-Clink-arg={each}" for each in ("-s", name, "-Wl,-dead_strip_dylibs")]
        environment |= {"CARGO_PROFILE_RELEASE_STRIP": "none", "MACOSX_DEPLOYMENT_TARGET": platform.least}
    if how.from_sources:
        # Cargo does this in nightly versions only, unless it is told to do as if it were one.
        environment |= {"RUSTC_BOOTSTRAP": "1", "CARGO_UNSTABLE_BUILD_STD": "std,panic_unwind"}
    return environment | {"CARGO_ENCODED_RUSTFLAGS": "\x1f".join(flags)}


def run(command: Iterable[str], *, cwd: Path, environment: dict[str, str]) -> None:
    """Raises NotMade with the last lines that a command said."""
    done = subprocess.run(
        [*command], cwd=cwd, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise NotMade("\n".join((done.stdout + done.stderr).splitlines()[-40:]))


def fresh(folder: Path) -> Path:
    """An empty folder; what was in it is removed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def unpack(archive: Path, folder: Path) -> Path:
    """The one folder in a source distribution, with modes that do not depend on who packed it. Files are new, because cargo builds
    again only what is newer than what it built."""
    shutil.unpack_archive(archive, folder)
    [top] = folder.iterdir()
    for file in top.rglob("*"):
        file.chmod(0o755 if file.is_dir() else 0o644)
        os.utime(file)
    return top


if __name__ == "__main__":
    sys.exit(main())
