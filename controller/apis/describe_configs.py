"""DescribeConfigs (key 32), versions 1-4.

Behaviour: on a controller listener, describes topics, groups and client metrics from the committed
metadata. It also describes this controller's own node and loggers, and the cluster-wide dynamic
defaults (broker with an empty name). Without keys (null or empty list) all keys are returned.
Sensitive values are null.

Versions: 1 has synonyms; 3 types and documentation.

Errors per resource: INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST (another
node's id, or another kind of resource).
"""

from __future__ import annotations

from functools import partial

from controller.configs.described import describe_resource
from controller.writer.writer import Controller
from protocol.api_keys import ApiKey
from protocol.messages.describe_configs import DescribeConfigsRequest
from protocol.transport.dispatch import HandlerTable, Reply, RequestContext
from serving.config_entries import describe_configs

MIN_VERSION = 1
MAX_VERSION = 4


def register(table: HandlerTable, controller: Controller) -> None:
    """Register the API in `table`."""

    def handle(context: RequestContext, request: DescribeConfigsRequest) -> Reply:
        return describe_configs(request, partial(describe_resource, controller.committed_view()))

    table.register(
        ApiKey.DESCRIBE_CONFIGS, handle, min_version=MIN_VERSION, max_version=MAX_VERSION
    )
