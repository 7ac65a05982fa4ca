"""Secrets come from files or the environment, never from the configuration itself: passwords, and the noise secret.

A configuration file ends up in repositories, tickets and logs. Anyone who has the noise secret can subtract the noise
from everything published under it, so it is never printed, never logged and never part of an error message.
"""

import base64
import binascii
import os
import secrets as random_source
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from susurrus.mechanisms.errors import ConfigurationError

MINIMUM_BYTES: Final = 32
ENVIRONMENT: Final = "SUSURRUS_SECRET"


def read_text(path: Path, field: str) -> str:
    """The stripped text of a secret file. Raises ConfigurationError naming the field and the path, not the content."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise ConfigurationError(
            f'{field}: cannot read file="{path}" ({reason})',
            "mount the secret there, or make it readable for this user",
        ) from None


def resolve(value: Any, field: str, directory: Path, environ: Mapping[str, str]) -> Any:
    """``{ file = "..." }`` becomes that file's text, ``{ env = "..." }`` that variable's; anything else is returned as
    it is."""
    if not isinstance(value, dict):
        return value
    match value:
        case {"file": str(name)} if len(value) == 1:
            return read_text(directory / name, field)
        case {"env": str(name)} if len(value) == 1:
            if name not in environ:
                raise ConfigurationError(f'{field}: env="{name}" is not set', "set that environment variable")
            return environ[name]
    raise ConfigurationError(f'{field}: write a text, {{ file = "/path" }} or {{ env = "NAME" }}')


def decode(data: bytes, origin: str) -> bytes:
    """The secret's bytes: hexadecimal or base64 text, or raw bytes as ``head -c 32 /dev/urandom`` writes them.

    Raises ConfigurationError when fewer than 32 bytes come out, or when the text is neither: a pass phrase is not a
    key.
    """
    text = data.strip()
    secret = b""
    if text.isascii() and text.decode("ascii").isprintable():
        try:
            secret = bytes.fromhex(text.decode("ascii"))
        except ValueError:
            try:
                secret = base64.b64decode(text, validate=True)
            except binascii.Error:
                raise ConfigurationError(
                    f"{origin}: neither hexadecimal nor base64", "make a secret with `susurrus config secret FILE`"
                ) from None
    else:
        secret = data
    if len(secret) < MINIMUM_BYTES:
        raise ConfigurationError(
            f"{origin}: bytes={len(secret)}, at least {MINIMUM_BYTES} are needed",
            "make a secret with `susurrus config secret FILE`",
        )
    return secret


def load(secret_file: Path | None, environ: Mapping[str, str], field: str) -> bytes:
    """The noise secret, from the file that ``field`` names or from the variable SUSURRUS_SECRET (hex or base64).

    Raises ConfigurationError when there is none: without a secret, anyone who knows the configuration could recompute
    the noise.
    """
    if secret_file is not None:
        try:
            data = secret_file.read_bytes()
        except OSError as error:
            raise ConfigurationError(
                f'{field}="{secret_file}": cannot be read ({error.strerror})',
                "make one with `susurrus config secret FILE` and give every worker the same file",
            ) from None
        return decode(data, f'{field}="{secret_file}"')
    if text := environ.get(ENVIRONMENT):
        return decode(text.encode(), ENVIRONMENT)
    raise ConfigurationError(
        f"{field}: no noise secret",
        "make one with `susurrus config secret FILE` and name it there, "
        f"or set {ENVIRONMENT} (hexadecimal or base64, at least {MINIMUM_BYTES} bytes)",
    )


def create(path: Path) -> None:
    """Write a new secret of 32 random bytes as hexadecimal, readable by its owner only. An existing file is never
    replaced; missing directories are made."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ConfigurationError(
            f'file="{path}" exists and is kept: without it nothing can be replayed', "choose another name"
        ) from None
    except OSError as error:
        raise ConfigurationError(
            f'file="{path}" cannot be written ({error.strerror})', "choose another place"
        ) from None
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(random_source.token_hex(MINIMUM_BYTES) + "\n")
