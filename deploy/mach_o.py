"""What a dynamic library for macOS asks of the machine that loads it, read on any machine.

The format is that of Apple's mach-o/loader.h and cs_blobs.h, in xnu: a header, load commands, and at the end a signature that has a
hash of each page of the file before it.
"""

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_MAGIC: Final = 0xFEEDFACF
_DYLIB: Final = 6
_ARCHITECTURES: Final = {0x01000007: "x86_64", 0x0100000C: "arm64"}
# Load commands. A library may be linked in four ways, which differ in when and whether it must be there.
_LINKS: Final = {0x0C, 0x80000018, 0x8000001F, 0x80000023}
_LEAST_MACOS: Final = 0x24
_BUILD: Final = 0x32
_SIGNATURE: Final = 0x1D
# Parts of a signature.
_SUPERBLOB: Final = 0xFADE0CC0
_CODE_DIRECTORY: Final = 0xFADE0C02
_SHA256: Final = 2


@dataclass(frozen=True, slots=True)
class LibraryFile:
    """architecture: as wheels name it. least_macos: major and minor version. libraries: paths of those that it loads. signed:
    whether its signature has the hash of every page; None where there is no signature."""

    architecture: str
    least_macos: tuple[int, int]
    libraries: tuple[str, ...]
    signed: bool | None


def read(content: bytes) -> LibraryFile:
    """Raises ValueError where it is no dynamic library for one 64-bit architecture, or is cut off."""
    try:
        return _read(content)
    except struct.error:
        raise ValueError("the file is cut off") from None


def _read(content: bytes) -> LibraryFile:
    magic, kind_of_processor, _, kind = struct.unpack_from("<4I", content)
    if magic != _MAGIC or kind != _DYLIB:
        raise ValueError("it is no dynamic library of macOS for one architecture")
    architecture = _ARCHITECTURES.get(kind_of_processor, f"processor {kind_of_processor:#x}")
    least, libraries, signed = None, [], None
    for command, start, size in _commands(content):
        if command in _LINKS:
            (name,) = struct.unpack_from("<I", content, start + 8)
            libraries.append(content[start + name : start + size].split(b"\0")[0].decode())
        elif command == _LEAST_MACOS:
            (least,) = struct.unpack_from("<I", content, start + 8)
        elif command == _BUILD:
            (least,) = struct.unpack_from("<I", content, start + 12)
        elif command == _SIGNATURE:
            signature, length = struct.unpack_from("<2I", content, start + 8)
            signed = _is_signed(content, content[signature : signature + length])
    if least is None:
        raise ValueError("it does not say for which macOS it is")
    return LibraryFile(architecture, (least >> 16, least >> 8 & 0xFF), tuple(libraries), signed)


def _commands(content: bytes) -> Iterator[tuple[int, int, int]]:
    """(command, where it begins, bytes) for each load command."""
    (number,) = struct.unpack_from("<I", content, 16)
    start = 32
    for _ in range(number):
        command, size = struct.unpack_from("<2I", content, start)
        if size < 8:
            raise ValueError("a load command has no length")
        yield command, start, size
        start += size


def _is_signed(content: bytes, signature: bytes) -> bool:
    """Whether every page is as it was when it was signed. Numbers of a signature are big-endian."""
    magic, _, parts = struct.unpack_from(">3I", signature)
    if magic != _SUPERBLOB:
        return False
    for part in range(parts):
        (start,) = struct.unpack_from(">I", signature, 12 + 8 * part + 4)
        directory = signature[start:]
        if struct.unpack_from(">I", directory) != (_CODE_DIRECTORY,):
            continue
        hashes, _, _, pages, limit = struct.unpack_from(">5I", directory, 16)
        size, kind, _, log_page = struct.unpack_from(">4B", directory, 36)
        page = 1 << log_page
        if kind != _SHA256 or pages != -(-limit // page):
            return False
        expected = b"".join(
            hashlib.sha256(content[at : min(at + page, limit)]).digest() for at in range(0, limit, page)
        )
        return directory[hashes : hashes + pages * size] == expected
    return False
