"""One `min.insync.replicas` for all, as eligible leader replicas need it (KIP-966).

Who is in an ELR is decided by the controller's min ISR, and what the high watermark may pass by the
leader's. So while the feature is on there is one value below the topics': the cluster-level one,
written when the feature is turned on, with no broker-level ones beside it.
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
    """What an empty log begins with: what formatting left, and with the feature on one min ISR.

    `own_min_isr` is the static value of the controller that writes it.
    """
    image = replay_all(EMPTY_IMAGE, bootstrap)
    if not image.elr_enabled:
        return tuple(bootstrap)
    return (*bootstrap, *one_min_isr(image, own_min_isr))


def one_min_isr(image: MetadataImage, own_min_isr: int) -> Iterator[ConfigRecord]:
    """The records that make min ISR one number: the cluster-level value, if there is none, and the
    end of the broker-level ones."""
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
    """Raise INVALID_CONFIG where a broker's values would end the one min ISR; asked while the
    feature is on. An empty name stands for all brokers."""
    if resource_name == CLUSTER_DEFAULT:
        if MIN_ISR in current and MIN_ISR not in target:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"the cluster-level {MIN_ISR} cannot be removed while {ELR_VERSION} is on; set "
                "another value",
            )
    elif MIN_ISR in target and target[MIN_ISR] != current.get(MIN_ISR):
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"broker {resource_name} cannot have a {MIN_ISR} of its own while {ELR_VERSION} is "
            "on; set it for all brokers or for a topic",
        )
