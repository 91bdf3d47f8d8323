"""Formatting of a node's directories at its start."""

from __future__ import annotations

import random

from metalog.format import FormatRefused, FormatRequest, format_directories
from runtime.clock import SystemClock
from runtime.config import NodeConfig
from runtime.errors import StartupRefused
from storage.files import RealFiles
from storage.log.errors import BadLogDirectory


def format_if_new(config: NodeConfig, cluster_id: str) -> None:
    """Format what has no identity yet. Raises StartupRefused, also when a directory has another
    cluster id."""
    files = RealFiles()
    rng = random.Random(random.SystemRandom().getrandbits(128))
    try:
        request = FormatRequest.from_node_config(config, cluster_id)
        format_directories(
            request._replace(ignore_formatted=True), files=files, clock=SystemClock(), rng=rng
        )
    except (FormatRefused, BadLogDirectory, OSError) as error:
        raise StartupRefused(str(error)) from error
    finally:
        files.close()
