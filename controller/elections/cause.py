"""Causes of elections, as written in partition change records.

The values are on disk and the audit reads them: never change the meaning of a value in use.
"""

from __future__ import annotations

from enum import Enum


class Cause(Enum):
    """The event that triggered a partition change."""

    TOPIC_CREATED = "topic-created"
    PARTITIONS_CREATED = "partitions-created"
    BROKER_FENCED = "broker-fenced"
    CONNECTION_LOST = "connection-lost"
    CONTROLLED_SHUTDOWN = "controlled-shutdown"
    BROKER_UNFENCED = "broker-unfenced"
    BROKER_REGISTERED = "broker-registered"
    BROKER_UNREGISTERED = "broker-unregistered"
    DIRECTORY_FAILED = "log-directory-failed"
    ISR_CHANGE = "isr-change"
    PREFERRED_REQUEST = "preferred-request"
    PREFERRED_REBALANCE = "preferred-rebalance"
    OPERATOR_REQUEST = "operator-request"
    UNCLEAN_CONFIG = "unclean-config"
    REASSIGNMENT = "reassignment"
    MIN_ISR = "min-isr"
    UNCLEAN_RECOVERY = "unclean-recovery"
