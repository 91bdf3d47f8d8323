"""Reading and private writing of properties files."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from runtime.config.properties import PropertiesError, parse_properties
from runtime.errors import StartupRefused


def read_properties(path: Path | str) -> dict[str, str]:
    """Read a properties file. Raises StartupRefused if it cannot be read or parsed."""
    try:
        with open(path, encoding="utf-8") as file:
            return parse_properties(file.read())
    except OSError as error:
        raise StartupRefused(f"cannot read {path}: {error.strerror}") from None
    except (UnicodeDecodeError, PropertiesError) as error:
        raise StartupRefused(f"cannot read {path}: {error}") from None


def write_private(path: Path, text: str) -> None:
    """Replace a file by one that only its owner may read, because settings may be passwords.

    Raises OSError.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()  # left by a killed process with this ID
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with open(fd, "w", encoding="utf-8") as file:
            file.write(text)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def overwrite_private(path: Path, text: str) -> None:
    """Write a file in place, readable by its owner only; a mounted file cannot be replaced.

    Raises OSError.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(fd, "w", encoding="utf-8") as file:
        # If another user owns the file, its mode stays.
        with contextlib.suppress(PermissionError):
            os.fchmod(fd, 0o600)
        file.write(text)
