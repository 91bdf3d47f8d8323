"""Clearing of ELR and LastKnownELR after min ISR was lowered to the ISR's size or below (KIP-966).

Members of the ELR hold everything below the high watermark because it did not advance while the ISR
was below min ISR. With a lower min ISR it may advance without them. So a partition whose ISR has
the new effective minimum loses both sets, in the batch that changes the configuration. If the ISR
is still below it, the sets stay: for a leaderless partition they are the only clean candidates.

If all partitions concerned lose their sets, one ClearElrRecord is written, as Kafka does at every
change; else each partition gets its own change. The records that clear the sets precede the one
that lowers the minimum, so that the log may end between them.

Turning the feature on is such a change for all partitions. Sets from an earlier time with the
feature may be out of date, since a broker could have its own min ISR in the meantime. Only a
partition with an empty ISR keeps its sets: it has had no leader since, so its high watermark has
not advanced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from controller.configs.topic_settings import MIN_ISR, min_isr_of
from controller.decision import ControllerView, Decision
from controller.elections.cause import Cause
from controller.elections.context import ElectionContext
from controller.elections.elr import effective_min_isr
from metalog.image.features import ELR_VERSION
from metalog.image.replay import replay_all
from metalog.image.values import ConfigResourceType, PartitionImage, TopicImage
from protocol.metadata.clear_elr_record import ClearElrRecord
from protocol.metadata.config_record import ConfigRecord
from protocol.metadata.feature_level_record import FeatureLevelRecord
from protocol.schema import MetadataRecord

R = TypeVar("R")

ALL_TOPICS: Final = ""
"""Name of all topics in a ClearElrRecord."""


def clearing_elr(
    decide: Callable[[ControllerView], Decision[R]],
) -> Callable[[ControllerView], Decision[R]]:
    """Wrap `decide`, whose records may change a min ISR or turn the feature on.

    The wrapped decision puts the resulting changes of partitions before those records.
    """

    def with_clearing(view: ControllerView) -> Decision[R]:
        decision = decide(view)
        cleared = _cleared(view, decision.records)
        return replace(decision, records=(*cleared, *decision.records)) if cleared else decision

    return with_clearing


def _cleared(view: ControllerView, records: Sequence[MetadataRecord]) -> list[MetadataRecord]:
    changed = [r for r in records if type(r) is ConfigRecord and r.name == MIN_ISR]
    turned_on = not view.elr_enabled and any(
        type(r) is FeatureLevelRecord and r.name == ELR_VERSION for r in records
    )
    by_name = view.image.topics.by_name
    if turned_on:
        return _clear(view, by_name, ALL_TOPICS, lambda _, partition: bool(partition.isr))
    if not changed:
        return []
    after = replace(view, image=replay_all(view.image, records))

    def clears(topic: TopicImage, partition: PartitionImage) -> bool:
        min_isr = min_isr_of(after, topic.name)
        return len(partition.isr) >= effective_min_isr(min_isr, len(partition.replicas))

    if any(r.resource_type == ConfigResourceType.BROKER for r in changed):
        return _clear(after, by_name, ALL_TOPICS, clears)
    names = {r.resource_name for r in changed if r.resource_type == ConfigResourceType.TOPIC}
    return [record for name in sorted(names) for record in _clear(after, [name], name, clears)]


def _clear(
    view: ControllerView,
    names: Iterable[str],
    record_name: str,
    clears: Callable[[TopicImage, PartitionImage], bool],
) -> list[MetadataRecord]:
    """Return one record under `record_name` if all partitions with sets lose them, else one change
    for each that does."""
    by_name = view.image.topics.by_name
    concerned = [
        (by_name[name], index, partition)
        for name in sorted(names)
        for index, partition in sorted(by_name[name].partitions.items())
        if partition.elr or partition.last_known_elr
    ]
    going = [one for one in concerned if clears(one[0], one[2])]
    if going and len(going) == len(concerned):
        return [ClearElrRecord(topic_name=record_name)]
    elections = ElectionContext(view)
    changes = (elections.change_partition(*one, Cause.MIN_ISR) for one in going)
    return [change.record for change in changes if change is not None]
