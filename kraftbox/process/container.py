"""`kraftbox container`: the entry point of the container image.

It follows the rules of Apache Kafka's image:
- `KAFKA_*` variables are properties and override /mnt/shared/config/server.properties. Without
  either, the image's own server.properties applies.
- The result is written to /opt/kafka/config. Unformatted log directories are formatted, then the
  node runs.
- Scripts that source /etc/kafka/docker/configure and then run launch take the two steps separately.

A new directory gets `CLUSTER_ID`, or the default of Kafka's image. A formatted directory keeps its
cluster. `properties_for` computes the properties without side effects.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from runtime import log
from runtime.config.env import merge
from runtime.config.properties import format_properties
from runtime.errors import StartupRefused
from runtime.printable import escape

_log = log.get_logger("kraftbox.process.container")

CLUSTER_ID_DEFAULT = "5L6g3nShT-eMCtK--X86sw"
"""The default cluster ID of Apache Kafka's image."""
HTTP_LISTENER = "kraftbox.http.listener"
HTTP_LISTENER_DEFAULT = "0.0.0.0:9404"


class Places(NamedTuple):
    """Directories of the image's configuration files."""

    bundled: Path = Path("/etc/kafka/docker")
    mounted: Path = Path("/mnt/shared/config")
    final: Path = Path("/opt/kafka/config")


def check_environment(environ: Mapping[str, str]) -> None:
    """Raise StartupRefused for environment variables that Kafka's image refuses."""
    is_controller = environ.get("KAFKA_PROCESS_ROLES") == "controller"
    if is_controller and environ.get("KAFKA_ADVERTISED_LISTENERS"):
        raise StartupRefused("KAFKA_ADVERTISED_LISTENERS is not supported on a KRaft controller")


def properties_for(
    environ: Mapping[str, str], mounted: Mapping[str, str], bundled: Mapping[str, str]
) -> dict[str, str]:
    """Return the node's properties. Raises StartupRefused as `check_environment` does."""
    check_environment(environ)
    given = {key: value for key, value in environ.items() if value or key != "KAFKA_LISTENERS"}
    advertised = given.get("KAFKA_ADVERTISED_LISTENERS")
    if not advertised:
        given.pop("KAFKA_ADVERTISED_LISTENERS", None)
    elif "KAFKA_LISTENERS" not in given and given.get("KAFKA_PROCESS_ROLES") != "controller":
        given["KAFKA_LISTENERS"] = re.sub(r"://[^:]*:", "://0.0.0.0:", advertised)
    found = merge(defaults=bundled, mounted=mounted, environ=given)
    # Kafka's image names a JMX port with KAFKA_JMX_PORT; kraftbox has no JMX.
    found.pop("jmx.port", None)
    found.setdefault(HTTP_LISTENER, HTTP_LISTENER_DEFAULT)
    return found


def write_properties(places: Places, environ: Mapping[str, str]) -> Path:
    """Compute and write server.properties; return its path.

    Raises StartupRefused for invalid variables or if the file cannot be written.
    """
    from kraftbox.process.properties import overwrite_private, read_properties

    def read(directory: Path) -> dict[str, str]:
        path = directory / "server.properties"
        return read_properties(path) if path.exists() else {}

    found = properties_for(environ, read(places.mounted), read(places.bundled))
    path = places.final / "server.properties"
    comment = "Written at every start of the container, from its environment."
    try:
        overwrite_private(path, format_properties(found, comment))
    except OSError as error:
        raise StartupRefused(f"cannot write {path}: {error.strerror}") from None
    return path


def run(environ: Mapping[str, str], places: Places | None = None) -> int:
    """Configure, format and serve; return the exit code. Raises ConfigError, StartupRefused."""
    return launch(environ, write_properties(places or Places(), environ))


def launch(environ: Mapping[str, str], path: Path) -> int:
    """Format and serve with the properties that `write_properties` wrote; return the exit code.

    Raises ConfigError, StartupRefused.
    """
    from kraftbox.process import lifetime
    from kraftbox.process.formatting import format_if_new, formatted_cluster_id
    from kraftbox.process.properties import read_properties
    from runtime.config import NodeConfig

    props = read_properties(path)
    config = NodeConfig.parse(props, hostname=lifetime.host_name(props))
    lifetime.configure_log(config)
    format_if_new(
        config, choose_cluster_id(environ.get("CLUSTER_ID"), formatted_cluster_id(config))
    )
    return lifetime.run(config)


def choose_cluster_id(wanted: str | None, formatted: str | None) -> str:
    """Return the cluster ID to format with; a formatted directory's ID overrides `CLUSTER_ID`.

    Kafka's image formats only new directories, so it also starts a volume of another cluster.
    """
    if formatted is not None:
        if wanted and wanted != formatted:
            _log.warning(
                "the log directory is formatted for another cluster than CLUSTER_ID; keeping it",
                cluster_id=formatted,
                CLUSTER_ID=wanted,
            )
        return formatted
    if not wanted:
        _log.info("CLUSTER_ID is not set; using the default", cluster_id=CLUSTER_ID_DEFAULT)
    return wanted or CLUSTER_ID_DEFAULT


def main(arguments: Sequence[str]) -> int:
    """Run `kraftbox container [configure | launch]`: one of the two steps, or both."""
    from runtime.config import ConfigError

    step = arguments[0] if arguments else ""
    try:
        if step == "configure":
            write_properties(Places(), os.environ)
            return 0
        if step == "launch":
            return launch(os.environ, Places().final / "server.properties")
        if step:
            raise StartupRefused(f"invalid container step {step}; allowed: configure, launch")
        return run(os.environ)
    except (ConfigError, StartupRefused) as error:
        for line in str(error).split("\n"):
            sys.stderr.write(f"kraftbox: {escape(line)}\n")
        return 1
