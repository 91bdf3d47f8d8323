"""Configuration from `KAFKA_*` environment variables, by the rules of Kafka's container image.

The prefix is removed, the rest is lower-cased, then `___` becomes a dash, `__` an underscore and
`_` a dot: `KAFKA_LOG_DIRS` is `log.dirs`. Only the first `KAFKA_` is a prefix. Variables for the
image's JVM and logging are not configuration. Neither are the variables of scripts around Kafka,
such as `KAFKA_HOME`, `KAFKA_LIBS` or `KAFKA_EXTRA_OPTS`: a single word that is not a key, or
options. A name of several words is accepted, so that a mistyped key causes a warning.
"""

from __future__ import annotations

from collections.abc import Mapping

from runtime.config.tables import NODE_KEYS

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
    """Return the key of a variable.

    `KAFKA_A_B` -> `a.b`, `KAFKA_A__B` -> `a_b`, `KAFKA_A___B` -> `a-b`.
    """
    dotted = variable.removeprefix(PREFIX).lower().replace("_", ".")
    return dotted.replace("...", "-").replace("..", "_")


def properties_from_env(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that the environment sets."""
    return {
        property_name(name): value
        for name, value in sorted(environ.items())
        if name.startswith(PREFIX) and name not in EXCLUDED and _may_be_a_key(property_name(name))
    }


def _may_be_a_key(name: str) -> bool:
    if name in NODE_KEYS:
        return True
    if name.isalnum():
        # Imported only for such a variable, because the import costs time at every start.
        from difflib import get_close_matches

        return bool(get_close_matches(name, [key for key in NODE_KEYS if key.isalnum()], n=1))
    return bool(name) and not name.endswith(".opts")


def merge(
    *, defaults: Mapping[str, str], mounted: Mapping[str, str] | None, environ: Mapping[str, str]
) -> dict[str, str]:
    """Return properties with the image's precedence.

    The environment overrides a mounted file. Without a mounted file the environment replaces the
    bundled defaults completely; the defaults apply only if everything else is empty.
    """
    merged = {**(mounted or {}), **properties_from_env(environ)}
    return merged if merged else dict(defaults)
