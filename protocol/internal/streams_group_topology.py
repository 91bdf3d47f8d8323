"""StreamsGroupTopology, key and value (record type 23); value version 0."""

from __future__ import annotations

from protocol.schema import FRESH, CoordinatorRecord, Struct, array, field, int16, int32, string


class StreamsGroupTopologyKey(CoordinatorRecord, record_type=23, versions="0"):
    group_id: str = field(string, "0", default="")


class StreamsGroupTopologyValue(CoordinatorRecord, record_type=23, versions="0", flexible="0+"):
    epoch: int = field(int32, "0+", default=0)
    subtopologies: list[Subtopology] = field(array("Subtopology"), "0+", default=FRESH)

    class TopicConfig(Struct):
        key: str = field(string, "0+", default="")
        value: str = field(string, "0+", default="")

    class TopicInfo(Struct):
        name: str = field(string, "0+", default="")
        partitions: int = field(int32, "0+", default=0)
        replication_factor: int = field(int16, "0+", default=0)
        topic_configs: list[StreamsGroupTopologyValue.TopicConfig] = field(
            array("TopicConfig"), "0+", default=FRESH
        )

    class Subtopology(Struct):
        subtopology_id: str = field(string, "0+", default="")
        source_topics: list[str] = field(array(string), "0+", default=FRESH)
        source_topic_regex: list[str] = field(array(string), "0+", default=FRESH)
        state_changelog_topics: list[StreamsGroupTopologyValue.TopicInfo] = field(
            array("TopicInfo"), "0+", default=FRESH
        )
        repartition_sink_topics: list[str] = field(array(string), "0+", default=FRESH)
        repartition_source_topics: list[StreamsGroupTopologyValue.TopicInfo] = field(
            array("TopicInfo"), "0+", default=FRESH
        )
        copartition_groups: list[StreamsGroupTopologyValue.CopartitionGroup] = field(
            array("CopartitionGroup"), "0+", default=FRESH
        )

    class CopartitionGroup(Struct):
        source_topics: list[int] = field(array(int16), "0+", default=FRESH)
        source_topic_regex: list[int] = field(array(int16), "0+", default=FRESH)
        repartition_source_topics: list[int] = field(array(int16), "0+", default=FRESH)
