"""StreamsGroupTopologyDescriptionUpdate (API key 93), version 0."""

from __future__ import annotations

from protocol.schema import (
    FRESH,
    Request,
    Response,
    Struct,
    array,
    field,
    int8,
    int16,
    int32,
    string,
    struct,
)


class StreamsGroupTopologyDescriptionUpdateResponse(
    Response, api_key=93, versions="0", flexible="0+"
):
    throttle_time_ms: int = field(int32, "0+", default=0)
    error_code: int = field(int16, "0+", default=0)
    error_message: str | None = field(string, "0+", nullable="0+", default=None)


class StreamsGroupTopologyDescriptionUpdateRequest(
    Request[StreamsGroupTopologyDescriptionUpdateResponse],
    api_key=93,
    versions="0",
    flexible="0+",
    listeners=("broker",),
):
    group_id: str = field(string, "0+", default="")
    member_id: str = field(string, "0+", default="")
    topology_epoch: int = field(int32, "0+", default=0)
    topology_description: TopologyDescription = field(
        struct("TopologyDescription"), "0+", default=FRESH
    )

    class TopologyDescription(Struct):
        subtopologies: list[
            StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionSubtopology
        ] = field(array("TopologyDescriptionSubtopology"), "0+", default=FRESH)
        global_stores: list[
            StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionGlobalStore
        ] = field(array("TopologyDescriptionGlobalStore"), "0+", default=FRESH)

    class TopologyDescriptionSubtopology(Struct):
        subtopology_id: str = field(string, "0+", default="")
        nodes: list[StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionNode] = field(
            array("TopologyDescriptionNode"), "0+", default=FRESH
        )

    class TopologyDescriptionNode(Struct):
        name: str = field(string, "0+", default="")
        node_type: int = field(int8, "0+", default=0)
        source_topics: list[str] = field(array(string), "0+", default=FRESH)
        sink_topic: str | None = field(string, "0+", nullable="0+", default=None)
        stores: list[str] = field(array(string), "0+", default=FRESH)
        successors: list[str] = field(array(string), "0+", default=FRESH)

    class TopologyDescriptionGlobalStore(Struct):
        source: StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionNode = field(
            struct("TopologyDescriptionNode"), "0+", default=FRESH
        )
        processor: StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionNode = field(
            struct("TopologyDescriptionNode"), "0+", default=FRESH
        )
