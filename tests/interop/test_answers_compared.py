"""Every API and version of both nodes: answers of ours and of Apache Kafka's compared.

Both are in the same state (`prepare`) and get the same requests (`answer_cases.py`). Answers are
compared field by field, except for ids, addresses and times. A difference is allowed by name
(`answer_differences.py`) with the sentence of docs/gaps.md about it, or it is a fault. So is an
allowed difference that does not occur any more.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from protocol.api_keys import ApiKey
from protocol.batch.records import Record, build_batch
from protocol.errors import EncodeError
from protocol.messages import request_class
from protocol.schema import Request, VersionRange
from testkit.kafka.class_archive import quick_to_start
from testkit.kafka.compared import TEXTS, UNSHARED, Difference, built, differences, plain
from testkit.kafka.jars import kafka_libs
from testkit.kafka.nodes import ApacheKafkaNode
from testkit.processes.nodes import KraftboxNode
from testkit.processes.peer import Closed, Peer, Target
from testkit.processes.ports import free_ports
from tests.interop.answer_cases import all_cases
from tests.interop.answer_differences import ALLOWED, SAYS_MORE, Allowed

pytestmark = pytest.mark.interop

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
NOT_BUILT = ("group", "transaction", "share", "streams")
SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.coordinator.rebalance.protocols": "classic",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
}
PATIENCE_S = 20.0
FAULTS_SHOWN = 40
BY_BROKERS_ONLY = frozenset({ApiKey.FETCH})
"""A controller's Fetch is the quorum's."""
NOT_ASKED_HERE: frozenset[int] = frozenset()
UNSHARED_OF: Mapping[ApiKey, frozenset[str]] = {
    # The position of each quorum.
    ApiKey.DESCRIBE_QUORUM: frozenset({"leader_epoch", "high_watermark", "log_end_offset"}),
    # The APIs of each node (`test_versions` compares the versions of the common ones).
    ApiKey.API_VERSIONS: frozenset({"api_keys", "supported_features"}),
}


@dataclass
class Node:
    """A node of either kind, prepared, and the ids of its topics."""

    target: Target
    controller: tuple[str, int] = ("", 0)
    ids: dict[str, bytes] = field(default_factory=dict)

    def ask(
        self, api: ApiKey, version: int, body: Mapping[str, Any], *, by_controller: bool = False
    ) -> Any:
        """Return the answer as plain values; "closed" if there was none. Raises: EncodeError."""
        request = self.request(api, version, body)
        address = self.controller if by_controller else self.target.address
        with Peer(address, PATIENCE_S) as peer:
            try:
                answer = peer.ask(request, version)
            except Closed:
                return "closed"
        names = {topic_id: name for name, topic_id in self.ids.items()}
        return plain(answer, names, UNSHARED | UNSHARED_OF.get(api, frozenset()))

    def request(self, api: ApiKey, version: int, body: Mapping[str, Any]) -> Request[Any]:
        request: Request[Any] = built(request_class(api), body, version, self.ids)
        return request

    def served(self, *, by_controller: bool = False) -> dict[int, VersionRange]:
        """Return the API versions in the node's ApiVersions."""
        body = {"client_software_name": "a", "client_software_version": "1"}
        with Peer(self.controller if by_controller else self.target.address) as peer:
            answer = peer.ask(self.request(ApiKey.API_VERSIONS, 4, body), 4)
        return {
            entry.api_key: VersionRange(entry.min_version, entry.max_version)
            for entry in answer.api_keys
        }

    def until_right(self, api: ApiKey, version: int, body: Mapping[str, Any]) -> Any:
        """Return the first answer without an error code."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self.ask(api, version, body)
            if not _has_error(answer):
                return answer
            assert time.monotonic() < deadline, answer
            time.sleep(0.05)


def _has_error(answer: Any) -> bool:
    if isinstance(answer, dict):
        return any(
            bool(value) if name == "error_code" else _has_error(value)
            for name, value in answer.items()
        )
    return isinstance(answer, list) and any(map(_has_error, answer))


def prepare(node: Node) -> Node:
    """Create topics with records, groups with offsets, quotas and credentials."""
    for name, partitions, configs in (
        ("plain", 3, {"retention.ms": "-1"}),  # its records are from 1970
        ("compact", 1, {"cleanup.policy": "compact"}),
        ("altered", 1, {}),
        ("written", 1, {}),
        ("dotted.name", 1, {}),
    ):
        node.ids[name] = node.target.topic(partitions, configs, name).id
    records = [Record(timestamp=1000 * n, key=b"k", value=b"v%d" % n) for n in range(1, 6)]
    batch = {"index": 0, "records": build_batch(records)}
    entry = {"name": "plain", "partition_data": [batch]}
    node.until_right(ApiKey.PRODUCE, 12, {"acks": -1, "timeout_ms": 5000, "topic_data": [entry]})
    for group in ("kept", "gone-0", "gone-1", "gone-2"):
        node.until_right(ApiKey.FIND_COORDINATOR, 3, {"key": group})
        partition = {"partition_index": 0, "committed_offset": 3, "committed_metadata": "m"}
        topics = [{"name": "plain", "partitions": [partition]}]
        node.until_right(ApiKey.OFFSET_COMMIT, 8, {"group_id": group, "topics": topics})
    credential = {"name": "alice", "mechanism": 1, "iterations": 4096}
    credential |= {"salt": b"salt", "salted_password": b"p" * 32}
    node.until_right(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, {"upsertions": [credential]})
    clients: tuple[str | None, ...] = ("c", None)
    for client in clients:
        quota = {
            "entity": [{"entity_type": "client-id", "entity_name": client}],
            "ops": [{"key": "producer_byte_rate", "value": 1e6, "remove": False}],
        }
        node.until_right(ApiKey.ALTER_CLIENT_QUOTAS, 1, {"entries": [quota]})
    node.until_right(ApiKey.INIT_PRODUCER_ID, 1, {"transactional_id": None})
    wanted = {"users": [{"name": "alice"}]}
    node.until_right(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, wanted)
    (quorum,) = _described_quorum(node)
    node.controller = (quorum.host, quorum.port)
    return node


def _described_quorum(node: Node) -> Sequence[Any]:
    """Return the listeners of the controllers."""
    partition = {"partition_index": 0}
    body = {"topics": [{"topic_name": "__cluster_metadata", "partitions": [partition]}]}
    with Peer(node.target.address) as peer:
        answer = peer.ask(node.request(ApiKey.DESCRIBE_QUORUM, 2, body), 2)
    return [listener for one in answer.nodes for listener in one.listeners]


def versions_of(api: ApiKey, ours: Node, theirs: Node, *, by_controller: bool = False) -> range:
    """Return the versions of an API that both serve."""
    one, other = (node.served(by_controller=by_controller).get(api) for node in (ours, theirs))
    if one is None or other is None:
        return range(0)
    return one.intersect(other).each()


def compare(
    api: ApiKey,
    body: Mapping[str, Any],
    version: int,
    nodes: tuple[Node, Node],
    *,
    by_controller: bool = False,
) -> list[Difference]:
    """Return the differences between our answer and Kafka's.

    Raises: EncodeError if this version of the API cannot encode the request.
    """
    ours, theirs = (node.ask(api, version, body, by_controller=by_controller) for node in nodes)
    return [found for found in differences(ours, theirs) if not _says_more(found)]


def _says_more(found: Difference) -> bool:
    """Return whether our answer has an error message where Kafka's has none."""
    name = found.path.rpartition(".")[2]
    return name in TEXTS and found.ours == "text" and not found.theirs


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, Node]]:
    """Start ours and Apache Kafka's, prepared in the same way."""
    if kafka_libs() is None:
        pytest.skip("no Java or Maven to get Kafka's jars with (docs/gaps.md)")
    directory = tmp_path_factory.mktemp("compared")
    client, controller = free_ports(2)
    kafka = ApacheKafkaNode(
        directory / "kafka",
        {
            **SETTINGS,
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(directory / "kafka/data"),
        },
        jvm=quick_to_start(),
    )
    levels = [part for name in NOT_BUILT for part in ("--feature", f"{name}.version=0")]
    kafka.format(CLUSTER_ID, *levels)
    kafka.begin()
    kraftbox = KraftboxNode(directory / "kraftbox", settings=SETTINGS)
    try:
        kraftbox.start()
        kafka.wait_until_ready()
        address = ("127.0.0.1", kraftbox.port)
        yield (
            prepare(Node(Target(address, is_kafka=False))),
            prepare(Node(Target(("127.0.0.1", client), is_kafka=True))),
        )
    finally:
        kraftbox.stop()
        kafka.stop()


def test_versions(nodes: tuple[Node, Node]) -> None:
    """Broker and controller serve each of our APIs in Kafka's versions."""
    for by_controller in (False, True):
        ours, theirs = (node.served(by_controller=by_controller) for node in nodes)
        assert ours == {key: theirs.get(key) for key in ours}
        asked = {api.value for api in all_cases()} | NOT_ASKED_HERE
        assert by_controller or set(ours) <= asked, "an API that no case asks"


@pytest.mark.parametrize("api", list(all_cases()), ids=lambda api: api.name)
def test_answers(nodes: tuple[Node, Node], api: ApiKey) -> None:
    cases = all_cases()[api]
    allowed = [one for one in ALLOWED if one.api is api]
    asked: set[str] = set()
    seen: set[Allowed] = set()
    faults: list[str] = []
    for by_controller, version in _places(api, nodes):
        for label, body in cases.items():
            try:
                found = compare(api, body, version, nodes, by_controller=by_controller)
            except EncodeError:
                continue
            asked.add(label)
            for one in found:
                known = {each for each in allowed if each.covers(label, one.path)}
                seen |= known
                if not known:
                    where = "controller" if by_controller else "broker"
                    faults.append(f"{where}, {label}, version {version}: {one}")
    assert not faults, "\n".join(faults[:FAULTS_SHOWN])
    assert seen == set(allowed), "allowed differences that are not there any more"
    assert asked == set(cases), "requests that no version can say"


def _places(api: ApiKey, nodes: tuple[Node, Node]) -> Iterator[tuple[bool, int]]:
    """Yield whether the controller is meant, and the version."""
    for by_controller in (False,) if api in BY_BROKERS_ONLY else (False, True):
        for version in versions_of(api, *nodes, by_controller=by_controller):
            yield by_controller, version


@pytest.mark.parametrize("version", range(request_class(ApiKey.JOIN_GROUP).VERSIONS.last + 1))
def test_a_members_life(nodes: tuple[Node, Node], version: int) -> None:
    """A member joins, gets its assignment, sends requests of wrong generations, commits and
    leaves."""
    group = f"life-{version}"
    members = ["", ""]
    joining = {
        "group_id": group,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"m"}],
    }
    # Since version 4 a member without an id gets one with the refusal.
    for _ in range(2 if version >= 4 else 1):
        answers: list[Any] = []
        for index, node in enumerate(nodes):
            asked_by = {**joining, "member_id": members[index]}
            with Peer(node.target.address) as peer:
                answer = peer.ask(node.request(ApiKey.JOIN_GROUP, version, asked_by), version)
            members[index] = answer.member_id
            answers.append(plain(answer, {}))
        assert list(differences(*answers)) == []
    for api, body in member_steps(group):
        asked = versions_of(api, *nodes)
        at = max(asked[0], min(version, asked[-1]))
        answers = [
            node.ask(api, at, {**body, **as_member(api, at, member)})
            for node, member in zip(nodes, members, strict=True)
        ]
        found = [one for one in differences(*answers) if not _says_more(one)]
        assert found == [], (api.name, at, body)


def member_steps(group: str) -> list[tuple[ApiKey, Mapping[str, Any]]]:
    """Return valid and invalid requests of a member of generation 1."""
    ours = {"group_id": group, "generation_id": 1}
    another = {"group_id": group, "generation_id": 7}
    protocol = {"protocol_type": "consumer", "protocol_name": "range"}
    commit = {
        "group_id": group,
        "topics": [
            {"name": "plain", "partitions": [{"partition_index": 0, "committed_offset": 1}]}
        ],
    }
    deleted = {"name": "plain", "partitions": [{"partition_index": 0}]}
    return [
        (ApiKey.HEARTBEAT, ours),
        (ApiKey.SYNC_GROUP, {**another, **protocol}),
        (ApiKey.SYNC_GROUP, {**ours, **protocol, "protocol_name": "other"}),
        (ApiKey.SYNC_GROUP, {**ours, **protocol, "assignments": [{"assignment": b"a"}]}),
        (ApiKey.SYNC_GROUP, {**ours, **protocol}),
        (ApiKey.HEARTBEAT, ours),
        (ApiKey.HEARTBEAT, another),
        (ApiKey.OFFSET_COMMIT, {**commit, "generation_id_or_member_epoch": 1}),
        (ApiKey.OFFSET_COMMIT, {**commit, "generation_id_or_member_epoch": 7}),
        (ApiKey.DESCRIBE_GROUPS, {"groups": [group]}),
        (ApiKey.DELETE_GROUPS, {"groups_names": [group]}),
        (ApiKey.OFFSET_DELETE, {"group_id": group, "topics": [deleted]}),
        (ApiKey.LEAVE_GROUP, {"group_id": group}),
        (ApiKey.LEAVE_GROUP, {"group_id": group}),
        (ApiKey.DELETE_GROUPS, {"groups_names": [group]}),
    ]


def as_member(api: ApiKey, version: int, member: str) -> Mapping[str, Any]:
    """Return the fields that identify the sender."""
    if api is ApiKey.LEAVE_GROUP and version >= 3:
        return {"members": [{"member_id": member}]}
    if api in (ApiKey.HEARTBEAT, ApiKey.SYNC_GROUP, ApiKey.LEAVE_GROUP):
        return {"member_id": member}
    if api is ApiKey.OFFSET_COMMIT and version < 10:
        return {"member_id": member}
    return {}


def test_every_allowed_difference_is_documented() -> None:
    gaps = " ".join(Path("docs/gaps.md").read_text().split())
    for one in ALLOWED:
        assert one.gap in gaps, one
    assert SAYS_MORE in gaps
