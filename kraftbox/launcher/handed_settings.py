"""Settings passed to a started `kraftbox up` in its environment, not on its command line.

Every user of a machine can read the command lines of all processes, and settings may be passwords.
Only a process's own user can read its environment.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping, Sequence

VARIABLE = "KRAFTBOX_UP_SETTINGS"
OPTION = "--set"


def handed(settings: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment that contains these settings."""
    return {**environ, VARIABLE: json.dumps(dict(settings))}


def taken(environ: MutableMapping[str, str]) -> dict[str, str]:
    """Remove the settings from an environment and return them; child processes do not inherit them.

    Raises StartupRefused if the variable is not a JSON object of strings.
    """
    text = environ.pop(VARIABLE, None)
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values()):
        # Not at the top: kraftbox.testing imports this module into processes of users, which have
        # no package `runtime` (decision 10).
        from runtime.errors import StartupRefused

        raise StartupRefused(f"{VARIABLE}: expected a JSON object of texts")
    return found


def without_settings(arguments: Sequence[str]) -> list[str]:
    """Return arguments of `up` without `--set` and its values."""
    left: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == OPTION:
            next(words, None)
        elif not word.startswith(f"{OPTION}="):
            left.append(word)
    return left
