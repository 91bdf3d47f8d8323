"""What brokers tell librdkafka of the cluster, in tests that kill the brokers it asks."""

from __future__ import annotations

import time

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata

from testkit.processes.waiting import WAIT_S

ASKED_S = 1.0
"""For the first answer; twice as long for each further one, if the machine is that busy."""


def listed(admin: AdminClient, topic: str | None = None, wait_s: float = WAIT_S) -> ClusterMetadata:
    """`admin.list_topics`, asked again after a second: a question that librdkafka has given to a
    broker in the moment of its death waits there for all of its own time-out, whoever else lives.

    Raises KafkaException when nobody has answered for `wait_s`.
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
