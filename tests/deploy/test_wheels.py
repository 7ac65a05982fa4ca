"""`make wheels`: who builds for which platform, what is refused, and that the same sources give the same bytes.

A real wheel is built, looked at and installed where $SUSURRUS_TEST_WHEELS names what `make wheels` made (tests/test_wheel.py); CI
does that.
"""

import hashlib
import os
import platform
import re
import struct
import sys
import zipfile
from pathlib import Path

import pytest

from deploy import wheel_checks, wheel_platforms, wheels
from deploy.mach_o import LibraryFile, read
from deploy.wheel_platforms import PLATFORMS, Compiler, Platform, Way

ROOT = Path(__file__).parents[2]
ARM, INTEL = 0x0100000C, 0x01000007
PAGE = 4096
MAC = next(each for each in PLATFORMS if each.tag == "macosx_11_0_arm64")
LINUX = PLATFORMS[0]


def compiler(sysroot: Path, *triples: str, sources: bool = False) -> Compiler:
    """With the standard library of these platforms."""
    for triple in triples:
        library = sysroot / "lib" / "rustlib" / triple / "lib" / "libstd-1.rlib"
        library.parent.mkdir(parents=True)
        library.touch()
    found = Compiler(f"{sysroot}/rustc", "rustc 1.2.3", sysroot)
    if sources:
        (found.sources / "std").mkdir(parents=True)
        (found.sources / "std" / "Cargo.toml").touch()
    return found


class TestWays:
    def test_an_installed_library_goes_before_sources_and_the_first_compiler_before_others(
        self, tmp_path: Path
    ) -> None:
        first = compiler(tmp_path / "first", "a", "b", sources=True)
        second = compiler(tmp_path / "second", "b", "c", sources=True)
        here = [first, second]
        assert wheel_platforms.way("a", here) == Way(first, from_sources=False)
        assert wheel_platforms.way("b", here) == Way(first, from_sources=False)
        assert wheel_platforms.way("c", here) == Way(second, from_sources=False)
        assert wheel_platforms.way("d", here) == Way(first, from_sources=True)

    def test_without_either_there_is_none(self, tmp_path: Path) -> None:
        assert wheel_platforms.way("d", [compiler(tmp_path, "a")]) is None
        assert wheel_platforms.way("a", []) is None

    def test_compilers_are_asked_where_their_libraries_are(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        program = tmp_path / "rustc"
        program.write_text(f'#!/bin/sh\ntest "$1" = --version && echo rustc 1.2.3 "(of a day)" || echo {tmp_path}\n')
        program.chmod(0o755)
        monkeypatch.setenv("RUSTC", str(program))
        for debians in ("/no/such/rustc", str(program)):  # missing, or the same again
            monkeypatch.setattr(wheel_platforms, "DEBIANS", debians)
            assert list(wheel_platforms.compilers()) == [Compiler(str(program), "rustc 1.2.3", tmp_path)]

    def test_this_machine_is_one_of_them_or_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "platform", "darwin")
        monkeypatch.setattr(platform, "machine", lambda: "arm64")
        assert wheel_platforms.native() == MAC
        monkeypatch.setattr(sys, "platform", "linux")
        monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
        assert wheel_platforms.native().tag == "musllinux_1_2_aarch64"
        monkeypatch.setattr(platform, "machine", lambda: "riscv64")
        with pytest.raises(LookupError, match="no wheel is made for riscv64-unknown-linux-musl"):
            wheel_platforms.native()


class TestMake:
    @pytest.fixture(autouse=True)
    def _elsewhere(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(wheels, "WORK", tmp_path / "work")
        monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")

    def test_what_cannot_be_built_is_named_with_what_to_install(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """And is a failure only for who asked for it."""
        monkeypatch.setattr(wheels, "compilers", lambda: iter([]))
        monkeypatch.setattr(wheels, "source_distribution", lambda out: out / "sources")
        assert wheels.main(["--out", str(tmp_path)]) == 0
        said = capsys.readouterr().out
        for each in PLATFORMS:
            assert re.search(rf"^NOT BUILT {each.tag}: .*`rustup target add {each.triple}`", said, re.MULTILINE)
        assert wheels.main(["--out", str(tmp_path), "--only", MAC.tag]) == 1
        assert capsys.readouterr().out.count("NOT BUILT") == 1

    def test_a_failed_build_is_told_and_the_others_are_made(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def make(platform: Platform, how: Way, source: Path, out: Path) -> Path:
            if platform == LINUX:
                raise wheels.NotMade("error: it broke")
            return out / platform.tag

        monkeypatch.setattr(wheels, "compilers", lambda: iter([compiler(tmp_path / "rust", sources=True)]))
        monkeypatch.setattr(wheels, "source_distribution", lambda out: out / "sources")
        monkeypatch.setattr(wheels, "make", make)
        assert wheels.main(["--out", str(tmp_path)]) == 1
        said = capsys.readouterr().out
        assert f"FAILED {LINUX.tag}: error: it broke" in said
        assert f"{tmp_path / MAC.tag}: rustc 1.2.3, its standard library built from its sources" in said

    def test_the_same_sources_give_the_same_source_distribution(self, tmp_path: Path) -> None:
        """At another moment, by another umask."""
        found = []
        for mask in (0o022, 0o077):
            before = os.umask(mask)
            try:
                (tmp_path / str(mask)).mkdir(mode=0o755)
                found.append(wheels.source_distribution(tmp_path / str(mask)).read_bytes())
            finally:
                os.umask(before)
        assert found[0] == found[1]
        unpacked = wheels.unpack(next(tmp_path.glob("*/*.tar.gz")), tmp_path / "unpacked")
        assert (unpacked / "topics" / "rust" / "Cargo.lock").is_file()
        assert (unpacked / "PKG-INFO").is_file()
        assert not [*unpacked.rglob("_compiled*.so")]

    def test_no_epoch_is_earlier_than_a_zip_file_can_say(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert wheels.epoch() == 1700000000
        monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
        assert wheels.epoch() == 315532800

    def test_the_image_is_given_what_make_wheels_is_made_of(self) -> None:
        """All modules that it imports, and all that it copies into the source distribution."""
        needed, found = {"wheels"}, set[str]()
        while needed - found:
            found |= (new := needed - found)
            for name in new:
                needed |= set(
                    re.findall(r"^from deploy\.(\w+) import", (ROOT / "deploy" / f"{name}.py").read_text(), re.M)
                )
        assert len(found) == 4
        context = (ROOT / ".dockerignore").read_text().splitlines()
        copied = " ".join(re.findall(r"^COPY (?!--)(.*)", (ROOT / "deploy" / "Dockerfile").read_text(), re.M)).split()
        for name in (*(f"deploy/{name}.py" for name in found), *wheels.SOURCES, *wheels.SOURCES_TOO):
            assert f"!{name}" in context, name
            assert name in copied, name


def wheel(folder: Path, platform: Platform, **modules: bytes) -> Path:
    path = folder / f"susurrus-1-cp311-abi3-{platform.tag}.whl"
    with zipfile.ZipFile(path, "w") as made:
        for package, content in modules.items():
            made.writestr(f"susurrus/{package}/_compiled.abi3.so", content)
    return path


class TestChecks:
    @pytest.fixture(autouse=True)
    def _no_tools(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """auditwheel and abi3audit are in an environment of their own."""
        monkeypatch.setattr(wheel_checks, "on_linux", lambda path, platform: iter(()))
        monkeypatch.setattr(wheel_checks, "stable_interface", lambda path: iter(()))

    def test_a_wheel_in_order_is_taken(self, tmp_path: Path) -> None:
        library = dynamic_library()
        wheel_checks.check(wheel(tmp_path, MAC, mechanisms=library, topics=library), MAC)

    def test_all_that_is_wrong_is_told(self, tmp_path: Path) -> None:
        made = wheel(tmp_path, LINUX, mechanisms=b"/root/.cargo/registry/src")
        with pytest.raises(wheel_checks.Unfit) as told:
            wheel_checks.check(made, MAC)
        for part in (
            "is not named for macosx_11_0_arm64",
            "it has the compiled modules",
            "a path of this machine, /root/",
        ):
            assert part in str(told.value)

    @pytest.mark.parametrize(
        ("content", "problem"),
        [
            ({"processor": INTEL}, "is for x86_64, not arm64"),
            ({"least": (13, 0)}, "asks for macOS 13.0, not 11.0"),
            (
                {"libraries": ("/usr/lib/libSystem.B.dylib", "/opt/x.dylib")},
                "links /usr/lib/libSystem.B.dylib, /opt/x.dylib",
            ),
            ({"signed": False}, "has no valid signature"),
        ],
    )
    def test_what_a_mac_would_refuse_is_found_here(self, content: dict[str, object], problem: str) -> None:
        assert [*wheel_checks.on_macos(dynamic_library(), MAC)] == []
        [found] = wheel_checks.on_macos(dynamic_library(**content), MAC)  # type: ignore[arg-type]
        assert problem in found

    def test_a_module_of_linux_is_none_of_macos(self) -> None:
        [found] = wheel_checks.on_macos(b"\x7fELF" + bytes(100), MAC)
        assert "no dynamic library of macOS" in found

    def test_a_changed_byte_breaks_the_signature(self) -> None:
        library = bytearray(dynamic_library())
        library[PAGE + 1] ^= 1
        assert read(bytes(library)).signed is False

    @pytest.mark.parametrize("length", [3, 20, 40, 200])
    def test_a_library_that_is_cut_off_is_no_library(self, length: int) -> None:
        with pytest.raises(ValueError, match="cut off"):
            read(dynamic_library()[:length])

    def test_what_a_library_asks_for_is_read(self) -> None:
        assert read(dynamic_library(processor=INTEL, least=(10, 12), signed=False)) == LibraryFile(
            "x86_64", (10, 12), ("/usr/lib/libSystem.B.dylib",), None
        )


def dynamic_library(
    *,
    processor: int = ARM,
    least: tuple[int, int] = (11, 0),
    libraries: tuple[str, ...] = ("/usr/lib/libSystem.B.dylib",),
    signed: bool = True,
) -> bytes:
    """Header and load commands, a page of code, and a signature, as Apple's mach-o/loader.h and cs_blobs.h have them."""
    commands = [struct.pack("<6I", 0x32, 24, 1, least[0] << 16 | least[1] << 8, 0, 0)]
    for name in libraries:
        text = name.encode() + bytes(-len(name) % 8 or 8)
        commands.append(struct.pack("<6I", 0x0C, 24 + len(text), 24, 2, 0, 0) + text)
    limit = 2 * PAGE + 100
    directory = 44 + 3 * 32
    if signed:
        commands.append(struct.pack("<4I", 0x1D, 16, limit, 20 + directory))
    body = b"".join(commands)
    header = struct.pack("<8I", 0xFEEDFACF, processor, 0, 6, len(commands), len(body), 0, 0)
    content = (header + body).ljust(limit, b"\x90")
    if not signed:
        return content
    pages = b"".join(hashlib.sha256(content[at : min(at + PAGE, limit)]).digest() for at in range(0, limit, PAGE))
    code = struct.pack(">9I4BI", 0xFADE0C02, directory, 0x20400, 2, 44, 0, 0, 3, limit, 32, 2, 0, 12, 0)
    return content + struct.pack(">5I", 0xFADE0CC0, 20 + directory, 1, 0, 20) + code + pages
