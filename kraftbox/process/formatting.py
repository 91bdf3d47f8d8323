"""Formatting of a node's directories at its start."""

from __future__ import annotations

import random

from metalog.format import FormatRefused, FormatRequest, format_directories
from protocol.ids import random_uuid, uuid_to_text
from runtime.clock import SystemClock
from runtime.config import NodeConfig
from runtime.errors import StartupRefused
from storage.files import RealFiles
from storage.log.directory import read_meta
from storage.log.errors import BadLogDirectory


def format_if_new(config: NodeConfig, cluster_id: str | None = None) -> None:
    """Format what has no identity yet, under the cluster id of what has; raises StartupRefused.

    `cluster_id` is for a node of a cluster, whose directories must have no other.
    """
    files = RealFiles()
    rng = random.Random(random.SystemRandom().getrandbits(128))
    try:
        if cluster_id is None:
            meta = read_meta(files, config.log_dir)
            cluster_id = uuid_to_text(random_uuid(rng)) if meta is None else meta.cluster_id
        request = FormatRequest.from_node_config(config, cluster_id)
        format_directories(
            request._replace(ignore_formatted=True), files=files, clock=SystemClock(), rng=rng
        )
    except (FormatRefused, BadLogDirectory, OSError) as error:
        raise StartupRefused(str(error)) from error
    finally:
        files.close()
