"""Formatting of a node's log directories at startup."""

from __future__ import annotations

import random

from metalog.format import FormatRefused, FormatRequest, format_directories
from runtime.clock import SystemClock
from runtime.config import NodeConfig
from runtime.errors import StartupRefused
from storage.files import RealFiles
from storage.log.directory import read_meta
from storage.log.errors import BadLogDirectory


def formatted_cluster_id(config: NodeConfig) -> str | None:
    """Return the cluster ID of the node's formatted directories, or None if none is formatted.

    Raises StartupRefused for a meta.properties that cannot be read.
    """
    files = RealFiles()
    try:
        metas = [read_meta(files, one) for one in (config.log_dir, config.metadata_log_dir)]
    except (BadLogDirectory, OSError) as error:
        raise StartupRefused(str(error)) from error
    finally:
        files.close()
    return next((meta.cluster_id for meta in metas if meta is not None), None)


def format_if_new(config: NodeConfig, cluster_id: str) -> None:
    """Format the directories that have no meta.properties yet.

    Raises StartupRefused if that fails, or if a directory has another cluster ID.
    """
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
