"""kafka-server-start.sh: run a node from a server.properties, until a signal ends it.

Like Kafka's script it reads the file and `--override key=value`, but no environment variables.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraftbox.cli.output import CommandFailed
from kraftbox.kafka_tools.options import file_properties, pairs, parser


def main(name: str, arguments: Sequence[str]) -> int:
    options = parser(name, (__doc__ or "").partition("\n")[0])
    options.add_argument("file", metavar="server.properties")
    options.add_argument("--override", action="append", metavar="KEY=VALUE")
    return serve(properties_of(options.parse_args(arguments)))


def properties_of(given: object) -> dict[str, str]:
    """Return the file's properties with the overrides. Raises CommandFailed."""
    found = file_properties(getattr(given, "file"))  # noqa: B009 - a Namespace
    return found | pairs(getattr(given, "override"), "--override")  # noqa: B009


def serve(properties: dict[str, str]) -> int:
    """Run the node; return the exit code. Raises CommandFailed."""
    from kraftbox.process import lifetime
    from runtime.config import ConfigError, NodeConfig
    from runtime.errors import StartupRefused

    try:
        config = NodeConfig.parse(properties, hostname=lifetime.host_name(properties))
        lifetime.configure_log(config)
        return lifetime.run(config)
    except (ConfigError, StartupRefused) as error:
        raise CommandFailed(str(error)) from None
