"""Properties files as operators hand them over."""

from __future__ import annotations

from pathlib import Path

from runtime.config.properties import PropertiesError, parse_properties
from runtime.errors import StartupRefused


def read_properties(path: Path | str) -> dict[str, str]:
    """A properties file; raises StartupRefused when it cannot be read or understood."""
    try:
        with open(path, encoding="utf-8") as file:
            return parse_properties(file.read())
    except OSError as error:
        raise StartupRefused(f"cannot read {path}: {error.strerror}") from None
    except (UnicodeDecodeError, PropertiesError) as error:
        raise StartupRefused(f"cannot read {path}: {error}") from None
