"""A single cluster-level `min.insync.replicas`, as eligible leader replicas need it (KIP-966).

The controller uses its own min ISR to maintain the ELR; a leader uses its own to advance the high
watermark. If the two differ, an ELR member may lack committed records. So while the feature is on,
there is one value below the topics' own: the cluster-level one, written when the feature is turned
on, without broker-level values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from controller.configs.topic_settings import CLUSTER_DEFAULT, MIN_ISR
from metalog.image.features import ELR_VERSION
from metalog.image.replay import replay_all
from metalog.image.values import EMPTY_IMAGE, ConfigResourceType, MetadataImage
from protocol.errors import ApiError, ErrorCode
from protocol.metadata.config_record import ConfigRecord
from protocol.schema import MetadataRecord


def first_records(
    bootstrap: Sequence[MetadataRecord], own_min_isr: int
) -> tuple[MetadataRecord, ...]:
    """Return the first records of an empty log: those from formatting, and one min ISR with ELR.

    Args:
        own_min_isr: static value of the controller that writes the records.
    """
    image = replay_all(EMPTY_IMAGE, bootstrap)
    if not image.elr_enabled:
        return tuple(bootstrap)
    return (*bootstrap, *one_min_isr(image, own_min_isr))


def one_min_isr(image: MetadataImage, own_min_isr: int) -> Iterator[ConfigRecord]:
    """Yield the records that leave one min ISR: the cluster-level value is added if it is missing,
    and the broker-level ones are removed."""
    broker = int(ConfigResourceType.BROKER)
    if MIN_ISR not in image.configs.get((broker, CLUSTER_DEFAULT), {}):
        yield ConfigRecord(
            resource_type=broker,
            resource_name=CLUSTER_DEFAULT,
            name=MIN_ISR,
            value=str(own_min_isr),
        )
    for kind, name in sorted(image.configs):
        if kind == broker and name != CLUSTER_DEFAULT and MIN_ISR in image.configs[kind, name]:
            yield ConfigRecord(resource_type=broker, resource_name=name, name=MIN_ISR, value=None)


def check_one_min_isr(
    resource_name: str, current: Mapping[str, str], target: Mapping[str, str]
) -> None:
    """Check that a broker's values keep the single min ISR; called while the feature is on.

    Args:
        resource_name: empty for all brokers.

    Raises:
        ApiError: INVALID_CONFIG.
    """
    if resource_name == CLUSTER_DEFAULT:
        if MIN_ISR in current and MIN_ISR not in target:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"the cluster-level {MIN_ISR} cannot be removed while {ELR_VERSION} "
                "is on; set another value",
            )
    elif MIN_ISR in target and target[MIN_ISR] != current.get(MIN_ISR):
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"broker {resource_name} cannot have its own {MIN_ISR} while "
            f"{ELR_VERSION} is on; set it for all brokers or for a topic",
        )
