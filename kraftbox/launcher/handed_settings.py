"""Settings that one process hands to the `kraftbox up` that it starts, without its command line.

Every user of a machine can read the command lines of all processes, and settings may be passwords.
A process's environment is for its own user only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping, Sequence

from runtime.errors import StartupRefused

VARIABLE = "KRAFTBOX_UP_SETTINGS"
OPTION = "--set"


def handed(settings: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment that hands over these settings."""
    return {**environ, VARIABLE: json.dumps(dict(settings))}


def taken(environ: MutableMapping[str, str]) -> dict[str, str]:
    """Take the settings out of an environment, so that processes started from here have none.

    Raises StartupRefused.
    """
    text = environ.pop(VARIABLE, None)
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values()):
        raise StartupRefused(f"{VARIABLE}: expected a JSON object of texts")
    return found


def without_settings(arguments: Sequence[str]) -> list[str]:
    """Return arguments of `up` without what they set."""
    left: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == OPTION:
            next(words, None)
        elif not word.startswith(f"{OPTION}="):
            left.append(word)
    return left
