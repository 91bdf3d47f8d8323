"""Every API of a node in every version: a valid request gets a readable answer.

No answer may be UNKNOWN_SERVER_ERROR. A field that a version does not have would close the
connection.
"""

import asyncio
from typing import Any

import pytest

from client.errors import error_codes
from protocol.api_keys import ApiKey
from protocol.batch.records import Record, build_batch
from protocol.errors import ErrorCode
from protocol.messages import request_class
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.schema import Kind, Request, Struct, parse_versions
from protocol.transport.client import Connection
from protocol.transport.own_names import TOOL_SOFTWARE_NAME
from testkit.memory.node import running_node

TOPIC = "t"
# Values with which a generic request has an effect.
VALUES: dict[str, Any] = {
    "acks": -1,
    "timeout_ms": 5000,
    "replica_id": -1,
    "max_wait_ms": 0,
    "max_bytes": 1 << 20,
    "partition_max_bytes": 1 << 20,
    "current_leader_epoch": -1,
    "leader_epoch": 0,
    "timestamp": -1,
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "protocol_type": "consumer",
    "generation_id_or_member_epoch": -1,
    "committed_leader_epoch": -1,
    "member_id": "",
    "group_instance_id": None,
    "transactional_id": None,
    "client_software_name": TOOL_SOFTWARE_NAME,
    "client_software_version": "1",
    "resource_type": 2,
    "num_partitions": 1,
    "replication_factor": 1,
    "session_epoch": -1,
    "member_epoch": -1,
    "cluster_id": None,
    "assignments": [],
    "configuration_keys": None,
    "coordinator_keys": ["g"],
    "groups_names": ["g"],
    "states_filter": [],
    "types_filter": [],
    "configs": [],
    "api_keys": [],
}
TEXTS = {"group": "g", "key": "g", "group_id": "g", "resource_name": TOPIC}
# Omitted here: they change leaders and the set of nodes.
LEFT_OUT = {
    ApiKey.UNREGISTER_BROKER,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.CONTROLLER_REGISTRATION,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.VOTE,
    ApiKey.ENVELOPE,
}


def sample(cls: type[Struct], owner: type[Any], version: int, topic_id: bytes) -> Struct:
    """Return a filled struct: one entry per list, plausible values, only fields of the version."""
    values = {}
    for f in cls.FIELDS:
        if version not in parse_versions(f.versions) or f.tag is not None:
            continue
        if f.name in VALUES:
            values[f.name] = VALUES[f.name]
        else:
            values[f.name] = value_of(f.kind, f.name, owner, version, topic_id)
        if values[f.name] is None and version not in parse_versions(f.nullable):
            values[f.name] = ""
    return cls(**values)


def value_of(kind: Kind, name: str, owner: type[Any], version: int, topic_id: bytes) -> Any:
    if kind.element is not None:
        return [value_of(kind.element, name, owner, version, topic_id)]
    if kind.struct_name:
        return sample(owner.structs()[kind.struct_name], owner, version, topic_id)
    if kind.name == "string":
        return TEXTS.get(name, TOPIC)
    if kind.name == "uuid":
        return topic_id
    if kind.name == "bytes":
        return b""
    if kind.name == "records":
        return build_batch([Record(0, 1_700_000_000_000, None, b"v")])
    if kind.name == "bool":
        return False
    return 0


def make_request(api: ApiKey, version: int, topic_id: bytes) -> Request[Any]:
    cls = request_class(api)
    # A group of its own does not wait for the members of earlier requests.
    TEXTS["group_id"] = f"g-{api.name}-{version}"
    request = sample(cls, cls, version, topic_id)
    if api is ApiKey.DESCRIBE_QUORUM:
        request.topics[0].topic_name = "__cluster_metadata"
    if api is ApiKey.OFFSET_FETCH and version >= 8:
        request.topics = []
    if api is ApiKey.FETCH and version >= 13 or api is ApiKey.METADATA and version >= 10:
        for topic in request.topics:
            topic.topic_id = topic_id if api is ApiKey.FETCH else bytes(16)
    return request


async def prepare(connection: Connection) -> bytes:
    """Create the topic and return its id."""
    topic = CreateTopicsRequest.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
    await connection.request(CreateTopicsRequest(topics=[topic], timeout_ms=5000))
    wanted = MetadataRequest.MetadataRequestTopic(name=TOPIC)
    for _ in range(100):
        found = (await connection.request(MetadataRequest(topics=[wanted]))).topics[0]
        if found.error_code == ErrorCode.NONE and found.partitions[0].leader_id >= 0:
            break
        await asyncio.sleep(0.01)
    return found.topic_id


async def ask_everything(client_port: int, port: int) -> tuple[int, list[str]]:
    failures = []
    asked = 0
    client = await Connection.connect("127.0.0.1", client_port, "test", 5000)
    connection = await Connection.connect("127.0.0.1", port, "test", 5000)
    topic_id = await prepare(client)
    for key, versions in sorted(connection.versions.items()):
        api = ApiKey(key)
        if api in LEFT_OUT:
            continue
        for version in versions.each():
            if version not in request_class(api).VERSIONS:
                continue
            asked += 1
            what = f"{api.name} v{version}"
            try:
                request = make_request(api, version, topic_id)
                reply = await connection.request(request, 5000, version=version)
            except ConnectionError as error:
                failures.append(f"{what}: {error}")
                connection = await Connection.connect("127.0.0.1", port, "test", 5000)
            else:
                if ErrorCode.UNKNOWN_SERVER_ERROR in set(error_codes(reply)):
                    failures.append(f"{what}: {reply}")
        if api in (ApiKey.DELETE_TOPICS, ApiKey.CREATE_TOPICS):
            topic_id = await prepare(client)
    await client.close()
    await connection.close()
    return asked, failures


@pytest.mark.parametrize("listener", ["PLAINTEXT", "CONTROLLER"])
async def test_every_api_answers_in_every_version(listener):
    async with running_node() as node:
        bound = node.broker if listener == "PLAINTEXT" else node.controller
        port = bound.bound_listeners[listener][1]
        asked, failures = await ask_everything(node.bound_port("PLAINTEXT"), port)
    assert failures == []
    assert asked > 40
