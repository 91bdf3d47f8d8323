"""Cluster metadata from librdkafka, in tests that kill the brokers it queries."""

from __future__ import annotations

import time

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata

from testkit.processes.waiting import WAIT_S

ASKED_S = 1.0
"""Timeout of the first attempt; twice as long for each further one, if the machine is that busy."""


def listed(admin: AdminClient, topic: str | None = None, wait_s: float = WAIT_S) -> ClusterMetadata:
    """Call `admin.list_topics`, and repeat it after a timeout.

    If a broker dies at the moment of the request, librdkafka waits for its own full timeout, even
    if other brokers are alive. Raises: KafkaException without a response within `wait_s`.
    """
    deadline, asked_s = time.monotonic() + wait_s, ASKED_S
    which = [] if topic is None else [topic]
    while True:
        try:
            return admin.list_topics(*which, timeout=asked_s)
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            asked_s *= 2
