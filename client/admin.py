"""Shell: Administration of a cluster: topics, configurations, groups, elections and the quorum.

A request goes to any broker, which forwards it to the controller if necessary. After a lost
connection it is sent to another broker. If the first one had carried it out all the same, the
second one refuses it (TOPIC_ALREADY_EXISTS, UNKNOWN_TOPIC_OR_PARTITION).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import NamedTuple, TypeVar

from client.cluster_client import ClusterClient
from client.elections import ElectionRequests, ElectionResult, ElectionType
from client.errors import check
from client.leaders import TopicPartition
from client.retries import retrying
from client.topic_pages import DescribedTopic, TopicPages, from_metadata
from protocol.errors import ApiError, ErrorCode, ProtocolError
from protocol.internal import decode_versioned
from protocol.internal.consumer_protocol_assignment import ConsumerProtocolAssignment
from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from protocol.messages.create_partitions import CreatePartitionsRequest
from protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from protocol.messages.explain_election import PARTITIONS_PER_REQUEST_MAX as EXPLAINED_MAX
from protocol.messages.explain_election import ExplainElectionRequest, ExplainElectionResponse
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from protocol.messages.offset_delete import OffsetDeleteRequest
from protocol.schema import Request, Response
from protocol.topic_name import CLUSTER_METADATA_TOPIC
from protocol.transport.client import DEFAULT_TIMEOUT_MS

R = TypeVar("R", bound=Response)

ANSWER_GRACE_MS = 2_000.0
"""Time for the response, in addition to the time of the election."""

ExplainedPartition = ExplainElectionResponse.ExplainedPartition

QUORUM_REQUEST = DescribeQuorumRequest(
    topics=[
        DescribeQuorumRequest.TopicData(
            topic_name=CLUSTER_METADATA_TOPIC,
            partitions=[DescribeQuorumRequest.PartitionData(partition_index=0)],
        )
    ]
)


class ResourceType(IntEnum):
    """The type of resource that has configurations."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigOperation(IntEnum):
    """Operations on a configuration (KIP-339); the last two change lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class NewTopic(NamedTuple):
    """A topic to be created; -1 means the cluster's default.

    With `replicas`, broker IDs by partition, the two numbers follow from it and stay -1.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = {}
    replicas: Mapping[int, Sequence[int]] = {}


class ConfigChange(NamedTuple):
    """One change of a configuration; the value of a DELETE is None."""

    key: str
    operation: ConfigOperation
    value: str | None


class Admin:
    """Administration requests over a ClusterClient.

    Every method raises Refused for an error code in the response, OSError if no node answers in
    time, and ApiError, EncodeError or ProtocolError as `ClusterClient.request_any` does.

    Args:
        timeout_ms: the time for each call, also passed to the controller.
    """

    def __init__(self, client: ClusterClient, timeout_ms: float = DEFAULT_TIMEOUT_MS) -> None:
        self._client = client
        self._timeout_ms = timeout_ms

    async def _ask(self, request: Request[R], node_id: int | None = None) -> R:
        """Send a request to one node, by default to any that answers."""
        if node_id is None:
            return await self._client.request_any(request, self._timeout_ms)
        await self._client.find_broker(node_id, self._timeout_ms)
        return await self._client.request_broker(node_id, request, self._timeout_ms)

    # --- topics --------------------------------------------------------------------------------

    async def create_topics(
        self, topics: Iterable[NewTopic], *, exist_ok: bool = False
    ) -> list[CreateTopicsResponse.CreatableTopicResult]:
        """Create topics with one request; return those that were created.

        Raises Refused for the first topic that was refused; with `exist_ok` an existing topic is
        not an error. Brokers learn of a new topic a moment later: `ClusterClient.topic` can wait
        for that.
        """
        request = CreateTopicsRequest(
            topics=[
                CreateTopicsRequest.CreatableTopic(
                    name=topic.name,
                    num_partitions=topic.partitions,
                    replication_factor=topic.replication_factor,
                    assignments=[
                        CreateTopicsRequest.CreatableReplicaAssignment(
                            partition_index=index, broker_ids=list(brokers)
                        )
                        for index, brokers in topic.replicas.items()
                    ],
                    configs=[
                        CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
                        for key, value in topic.configs.items()
                    ],
                )
                for topic in topics
            ],
            timeout_ms=int(self._timeout_ms),
        )
        created = []
        for one in (await self._ask(request)).topics:
            if exist_ok and one.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
                continue
            check(one.error_code, one.name, one.error_message)
            created.append(one)
        return created

    async def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic and wait until a broker knows a leader of each partition."""
        await self.create_topics([NewTopic(name, partitions, replication_factor, configs or {})])
        await self._client.topic(name, self._timeout_ms, is_new=True)

    async def delete_topic(self, name: str, *, missing_ok: bool = False) -> bool:
        """Delete a topic with its records.

        Return False if it did not exist and `missing_ok` is set.
        """
        request = DeleteTopicsRequest(
            topics=[DeleteTopicsRequest.DeleteTopicState(name=name)],
            timeout_ms=int(self._timeout_ms),
        )
        result = (await self._ask(request)).responses[0]
        if missing_ok and result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return False
        check(result.error_code, name, result.error_message)
        return True

    async def create_partitions(
        self, topic: str, count: int, replicas: Sequence[Sequence[int]] | None = None
    ) -> None:
        """Increase a topic's partitions to `count`.

        `replicas` are the broker IDs of each new one.
        """
        assignments = None
        if replicas is not None:
            assignments = [
                CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=list(brokers))
                for brokers in replicas
            ]
        request = CreatePartitionsRequest(
            topics=[
                CreatePartitionsRequest.CreatePartitionsTopic(
                    name=topic, count=count, assignments=assignments
                )
            ],
            timeout_ms=int(self._timeout_ms),
        )
        result = (await self._ask(request)).results[0]
        check(result.error_code, topic, result.error_message)

    async def describe_topics(self, names: Sequence[str] | None = None) -> list[DescribedTopic]:
        """Return topics with all their partitions, sorted by name: the named ones, or all.

        Eligible leader replicas (KIP-966) are None if the brokers cannot report them: older Kafka
        brokers have no DescribeTopicPartitions, so Metadata is requested instead.
        """
        pages = TopicPages(names)
        try:
            while (request := pages.request) is not None:
                pages.take(await self._ask(request))
            found = pages.found
        except ApiError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
            found = from_metadata(await self._client.metadata(names, self._timeout_ms))
        for topic in found:
            check(topic.error_code, topic.name or "")
        return found

    # --- configurations ------------------------------------------------------------------------

    async def describe_configs(
        self,
        kind: ResourceType,
        names: Sequence[str],
        *,
        synonyms: bool = False,
        documentation: bool = False,
    ) -> dict[str, list[DescribeConfigsResponse.DescribeConfigsResourceResult]]:
        """Return configurations by resource name, including defaults.

        A broker's configurations are requested from that broker, because only it knows its static
        ones. The name of a broker resource is its ID, empty for the default of all brokers.
        """
        by_node: dict[int | None, list[str]] = defaultdict(list)
        for name in names:
            by_node[_node_of(kind, name)].append(name)
        found = {}
        for node_id, asked in by_node.items():
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsRequest.DescribeConfigsResource(
                        resource_type=kind, resource_name=name, configuration_keys=None
                    )
                    for name in asked
                ],
                include_synonyms=synonyms,
                include_documentation=documentation,
            )
            for result in (await self._ask(request, node_id)).results:
                check(result.error_code, result.resource_name, result.error_message)
                found[result.resource_name] = result.configs
        return found

    async def topic_values(self, key: str, topics: Iterable[str]) -> dict[str, str]:
        """Return the value of one key for each topic."""
        found = await self.describe_configs(ResourceType.TOPIC, sorted(topics))
        return {
            topic: next(one.value or "" for one in entries if one.name == key)
            for topic, entries in found.items()
        }

    async def alter_configs(
        self,
        kind: ResourceType,
        name: str,
        changes: Iterable[ConfigChange],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change single configuration keys (KIP-339); other keys keep their values."""
        request = IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsRequest.AlterConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=[
                        IncrementalAlterConfigsRequest.AlterableConfig(
                            name=change.key,
                            config_operation=change.operation,
                            value=change.value,
                        )
                        for change in changes
                    ],
                )
            ],
            validate_only=validate_only,
        )
        # Only a logger's level is changed by the node itself.
        node_id = _node_of(kind, name) if kind is ResourceType.BROKER_LOGGER else None
        result = (await self._ask(request, node_id)).responses[0]
        check(result.error_code, name, result.error_message)

    # --- groups --------------------------------------------------------------------------------

    async def list_groups(self) -> list[ListGroupsResponse.ListedGroup]:
        """Return the groups of every coordinator, sorted.

        A coordinator that is loading is retried.
        """
        found = []
        for broker in (await self._client.metadata([], self._timeout_ms)).brokers:
            found += await retrying(self._timeout_ms, partial(self._groups_of, broker.node_id))
        return sorted(found, key=lambda group: group.group_id)

    async def _groups_of(
        self, node_id: int, timeout_ms: float
    ) -> list[ListGroupsResponse.ListedGroup]:
        await self._client.find_broker(node_id, timeout_ms)
        reply = await self._client.request_broker(node_id, ListGroupsRequest(), timeout_ms)
        check(reply.error_code, f"node {node_id}")
        return reply.groups

    async def describe_group(self, group: str) -> DescribeGroupsResponse.DescribedGroup:
        """Return the state and members of a group; the state of an unknown group is Dead."""
        request = DescribeGroupsRequest(groups=[group])
        reply = await self._client.request_coordinator(group, request, self._timeout_ms)
        described = reply.groups[0]
        if described.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            described.group_state = "Dead"
            return described
        check(described.error_code, group, described.error_message)
        return described

    async def delete_group(self, group: str) -> None:
        """Delete a group that has no members, with its offsets."""
        request = DeleteGroupsRequest(groups_names=[group])
        reply = await self._client.request_coordinator(group, request, self._timeout_ms)
        check(reply.results[0].error_code, group)

    async def delete_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete committed offsets of a group; its members must not subscribe to those topics."""
        by_topic: dict[str, list[int]] = defaultdict(list)
        for topic, index in partitions:
            by_topic[topic].append(index)
        request = OffsetDeleteRequest(
            group_id=group,
            topics=[
                OffsetDeleteRequest.OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=index)
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic.items()
            ],
        )
        reply = await self._client.request_coordinator(group, request, self._timeout_ms)
        check(reply.error_code, group)
        for entry in reply.topics:
            for one in entry.partitions:
                check(one.error_code, f"{entry.name}-{one.partition_index}")

    # --- replicas and quorum -------------------------------------------------------------------

    async def elect_leaders(
        self,
        kind: ElectionType,
        partitions: Iterable[TopicPartition] | None = None,
        leaders: Mapping[TopicPartition, int] | None = None,
    ) -> dict[TopicPartition, ElectionResult]:
        """Elect leaders of these partitions; return the result of each.

        Without a list, elect in all partitions; those that need no election are then left out.
        `timeout_ms` is for each request of up to a thousand partitions. `leaders` names for a
        designation the broker that is to lead. Raises ApiError(UNSUPPORTED_VERSION) if a Kafka
        cluster lacks the type.
        """
        everything = partitions is None
        if partitions is None:
            partitions = [
                (topic.name or "", one.partition_index)
                for topic in await self.describe_topics()
                for one in topic.partitions
            ]
        elections = ElectionRequests(kind, partitions, leaders)
        while (request := elections.request(self._timeout_ms)) is not None:
            # Wait longer than the broker does, so that its own timeout response arrives.
            patience_ms = self._timeout_ms + ANSWER_GRACE_MS
            reply = await self._client.request_any(
                request, patience_ms, version=kind.version, answer_ms=patience_ms
            )
            elections.take(reply)
        if not everything:
            return elections.results
        return {
            partition: result
            for partition, result in elections.results.items()
            if result.number != ErrorCode.ELECTION_NOT_NEEDED
        }

    async def explain_elections(
        self, partitions: Iterable[TopicPartition]
    ) -> list[ExplainedPartition]:
        """Explain for these partitions why they have their leader or none.

        Raises Refused for the first partition that does not exist, and
        ApiError(UNSUPPORTED_VERSION) for a Kafka cluster.
        """
        listed = list(partitions)
        found: list[ExplainedPartition] = []
        for begin in range(0, len(listed), EXPLAINED_MAX):
            request = ExplainElectionRequest(
                topics=[
                    ExplainElectionRequest.Topic(name=topic, partitions=[index])
                    for topic, index in listed[begin : begin + EXPLAINED_MAX]
                ]
            )
            reply = await self._ask(request)
            check(reply.error_code, "explanation", reply.error_message)
            found += reply.partitions
        for one in found:
            check(one.error_code, f"{one.topic}-{one.partition}")
        return found

    async def reassign(self, partition: TopicPartition, replicas: Sequence[int] | None) -> None:
        """Start to move a partition to these brokers (KIP-455); None cancels an ongoing
        reassignment.
        """
        await self.reassign_all({partition: replicas})

    async def reassign_all(self, wanted: Mapping[TopicPartition, Sequence[int] | None]) -> None:
        """Start or cancel reassignments of many partitions, in one request.

        Raises Refused for the first refused partition; the others are moved all the same.
        """
        topics: dict[str, AlterPartitionReassignmentsRequest.ReassignableTopic] = {}
        for (name, index), replicas in wanted.items():
            topic = topics.setdefault(
                name, AlterPartitionReassignmentsRequest.ReassignableTopic(name=name, partitions=[])
            )
            topic.partitions.append(
                AlterPartitionReassignmentsRequest.ReassignablePartition(
                    partition_index=index, replicas=None if replicas is None else list(replicas)
                )
            )
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=int(self._timeout_ms), topics=list(topics.values())
        )
        reply = await self._ask(request)
        check(reply.error_code, "reassignment", reply.error_message)
        for topic_reply in reply.responses:
            for result in topic_reply.partitions:
                if result.error_code != ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:
                    named = f"{topic_reply.name}-{result.partition_index}"
                    check(result.error_code, named, result.error_message)

    async def reassignments(
        self,
    ) -> list[ListPartitionReassignmentsResponse.OngoingTopicReassignment]:
        """Return the ongoing reassignments by topic."""
        reply = await self._ask(
            ListPartitionReassignmentsRequest(timeout_ms=int(self._timeout_ms), topics=None)
        )
        check(reply.error_code, "reassignments", reply.error_message)
        return reply.topics

    async def describe_quorum(self) -> DescribeQuorumResponse:
        """Return leader, voters and observers of the metadata quorum: one topic with one
        partition.
        """
        reply = await self._ask(QUORUM_REQUEST)
        check(reply.error_code, CLUSTER_METADATA_TOPIC, reply.error_message)
        found = reply.topics[0].partitions[0]
        check(found.error_code, CLUSTER_METADATA_TOPIC, found.error_message)
        return reply


def owners_of(
    members: Iterable[DescribeGroupsResponse.DescribedGroupMember],
) -> dict[TopicPartition, str]:
    """Return the owning member ID of each assigned partition.

    Members of other protocols are left out.
    """
    owners = {}
    for member in members:
        try:
            assignment, _ = decode_versioned(
                ConsumerProtocolAssignment, member.member_assignment, newer_as_latest=True
            )
        except ProtocolError:
            continue
        for topic in assignment.assigned_partitions:
            for index in topic.partitions:
                owners[topic.topic, index] = member.member_id
    return owners


def _node_of(kind: ResourceType, name: str) -> int | None:
    """Return the broker that a resource belongs to, None if it belongs to the cluster."""
    own = kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER)
    return int(name) if own and name.isdigit() else None
