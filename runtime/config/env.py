"""Configuration from `KAFKA_*` environment variables, by the rules of Kafka's container image.

The prefix is stripped, the rest lower-cased, then `___` means a dash, `__` an underscore and `_`
a dot: `KAFKA_LOG_DIRS` is `log.dirs`. Only the first `KAFKA_` is a prefix. Variables that steer
the image's JVM and logging are not configuration.
"""

from __future__ import annotations

from collections.abc import Mapping

PREFIX = "KAFKA_"
EXCLUDED = frozenset(
    {
        "KAFKA_VERSION",
        "KAFKA_HEAP_OPTS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_OPTS",
        "KAFKA_JMX_OPTS",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_JMX_HOSTNAME",
    }
)


def property_name(variable: str) -> str:
    """`KAFKA_A_B` -> `a.b`, `KAFKA_A__B` -> `a_b`, `KAFKA_A___B` -> `a-b`."""
    dotted = variable.removeprefix(PREFIX).lower().replace("_", ".")
    return dotted.replace("...", "-").replace("..", "_")


def properties_from_env(environ: Mapping[str, str]) -> dict[str, str]:
    """The properties that the environment sets."""
    return {
        property_name(name): value
        for name, value in sorted(environ.items())
        if name.startswith(PREFIX) and name != PREFIX and name not in EXCLUDED
    }


def merge(
    *, defaults: Mapping[str, str], mounted: Mapping[str, str] | None, environ: Mapping[str, str]
) -> dict[str, str]:
    """The image's precedence: environment over a mounted file; without a mounted file the
    environment replaces the bundled defaults altogether; the defaults count only when the rest is
    empty."""
    merged = {**(mounted or {}), **properties_from_env(environ)}
    return merged if merged else dict(defaults)
