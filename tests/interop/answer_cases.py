"""Requests for `test_answers_compared.py`: a list per API, in the form of `testkit.kafka.compared`.

`prepare` in that test defines the state of both nodes at the time of the requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from protocol.api_keys import ApiKey
from testkit.kafka.compared import Id
from tests.interop.answer_cluster_cases import cluster
from tests.interop.answer_group_cases import groups
from tests.interop.answer_values import (
    BATCH,
    BROKER,
    GROUP,
    LOGGER,
    LONG,
    MAX32,
    MAX64,
    METRICS,
    MIN64,
    TOPIC,
    UNKNOWN_ID,
    Cases,
    of_topics,
)


def _with(cases: Cases, **more: Any) -> Cases:
    return {label: {**body, **more} for label, body in cases.items()}


def _list_offsets() -> Cases:
    def asked(**given: Any) -> Mapping[str, Any]:
        partition = {"partition_index": 0, "timestamp": -1, **given}
        return {"replica_id": -1, "topics": [{"name": "plain", "partitions": [partition]}]}

    found: dict[str, Any] = dict(
        _with(
            of_topics({"timestamp": -1}, "partition_index"),
            replica_id=-1,
        )
    )
    for timestamp in (0, 1500, 99_999, MAX64, MIN64, -2, -3, -4, -5, -6, -7):
        found[f"timestamp {timestamp}"] = asked(timestamp=timestamp)
        found[f"timestamp {timestamp}, empty"] = asked(timestamp=timestamp, partition_index=1)
    for epoch in (0, 1, MAX32, -2):
        found[f"leader epoch {epoch}"] = asked(current_leader_epoch=epoch)
    for replica_id in (-2, -3, 1, 2, MAX32):
        found[f"replica {replica_id}"] = {**asked(), "replica_id": replica_id}
    for level in (1, 2, -1):
        found[f"isolation level {level}"] = {**asked(), "isolation_level": level}
    return found


def _metadata() -> Cases:
    def asked(*topics: Mapping[str, Any], **given: Any) -> Mapping[str, Any]:
        return {"topics": list(topics), "allow_auto_topic_creation": False, **given}

    plain = {"name": "plain"}
    return {
        "a topic": asked(plain),
        "a topic, creation allowed": {"topics": [plain]},
        "an unknown topic, creation allowed": {"topics": [{"name": "unknown"}]},
        "no topics": asked(),
        "an unknown topic": asked({"name": "unknown"}),
        "an invalid topic": asked({"name": "a b"}),
        "an empty name": asked({"name": ""}),
        "a long name": asked({"name": LONG}),
        "a topic by id": asked({"name": None, "topic_id": Id("plain")}),
        "an unknown id": asked({"name": None, "topic_id": UNKNOWN_ID}),
        "id and name": asked({"name": "plain", "topic_id": Id("plain")}),
        "id and another name": asked({"name": "compact", "topic_id": Id("plain")}),
        "an id twice": asked(*[{"name": None, "topic_id": Id("plain")}] * 2),
        "a topic twice": asked(plain, plain),
        "an unknown topic twice": asked({"name": "unknown"}, {"name": "unknown"}),
        "authorized operations": asked(
            plain,
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
        ),
        "authorized operations of an unknown id": asked(
            {"name": None, "topic_id": UNKNOWN_ID}, include_topic_authorized_operations=True
        ),
        "authorized operations of an unknown topic": asked(
            {"name": "unknown"}, {"name": "a b"}, include_topic_authorized_operations=True
        ),
    }


def _produce() -> Cases:
    def asked(topic: str = "plain", index: int = 0, **given: Any) -> Mapping[str, Any]:
        entry = {
            "name": topic,
            "topic_id": UNKNOWN_ID if topic in ("unknown", "a b") else Id(topic),
            "partition_data": [{"index": index, "records": given.pop("records", BATCH)}],
        }
        return {"acks": -1, "timeout_ms": 5000, "topic_data": [entry], **given}

    return {
        "no records": asked(records=b""),
        "an unknown topic": asked("unknown"),
        "an invalid topic": asked("a b"),
        "an unknown partition": asked(index=99),
        "a negative partition": asked(index=-1),
        "acks of 2": asked(acks=2),
        "acks of -2": asked(acks=-2),
        "a short batch": asked(records=b"\0" * 20),
        "rubbish": asked(records=b"\0" * 100),
        "no topics": {"acks": -1, "timeout_ms": 5000, "topic_data": []},
        "a transactional id": asked("written", transactional_id="t"),
    }


def _fetch() -> Cases:
    def asked(topic: str = "plain", index: int = 0, **given: Any) -> Mapping[str, Any]:
        partition = {"partition": index, "partition_max_bytes": 1000, **given}
        known = topic in ("plain", "compact")
        entry = {
            "topic": topic,
            "topic_id": Id(topic) if known else UNKNOWN_ID,
            "partitions": [partition],
        }
        return {"max_bytes": 1000, "topics": [entry]}

    one = asked()
    return {
        "a partition": one,
        "at the end": asked(fetch_offset=5),
        "beyond the end": asked(fetch_offset=6),
        "offset -1": asked(fetch_offset=-1),
        "the greatest offset": asked(fetch_offset=MAX64),
        "an empty partition": asked(index=1),
        "an unknown partition": asked(index=99),
        "a negative partition": asked(index=-1),
        "an unknown topic": asked("unknown"),
        "an invalid topic": asked("a b"),
        "an epoch to come": asked(current_leader_epoch=99),
        "an epoch of -2": asked(current_leader_epoch=-2),
        "no bytes": asked(partition_max_bytes=0),
        "negative bytes": asked(partition_max_bytes=-1),
        "no topics": {"max_bytes": 1000},
        "a session": {**one, "session_epoch": 0},
        "a session there is not": {**one, "session_id": 12345, "session_epoch": 1},
        "an epoch without a session": {**one, "session_epoch": 5},
        "the end of a session there is not": {"session_id": 12345, "session_epoch": -1},
        "committed only": {**one, "isolation_level": 1},
        "no isolation level": {**one, "isolation_level": 7},
        "a follower there is not": {**one, "replica_id": 7},
        "a debugger": {**one, "replica_id": -2},
        "a rack": {**one, "rack_id": "r"},
        "a cluster": {**one, "cluster_id": "another"},
        "epochs of a follower": {**asked(last_fetched_epoch=0, current_leader_epoch=0)},
    }


def _configs() -> Cases:
    def asked(kind: int, name: str, *keys: str, **given: Any) -> Mapping[str, Any]:
        chosen = list(keys) or None
        resource = {"resource_type": kind, "resource_name": name, "configuration_keys": chosen}
        return {"resources": [resource], **given}

    keys = ("retention.ms", "cleanup.policy")
    return {
        "a topic": asked(TOPIC, "plain", *keys),
        "a topic with overrides": asked(TOPIC, "compact", *keys),
        "with synonyms": asked(TOPIC, "compact", *keys, include_synonyms=True),
        "with documentation": asked(TOPIC, "compact", *keys, include_documentation=True),
        "a key there is not": asked(TOPIC, "plain", "nothing"),
        "an unknown topic": asked(TOPIC, "unknown", *keys),
        "an invalid topic": asked(TOPIC, "a b", *keys),
        "an empty topic": asked(TOPIC, "", *keys),
        "the broker": asked(BROKER, "1", "log.retention.ms", "num.io.threads"),
        "with synonyms of the broker": asked(
            BROKER, "1", "log.retention.ms", include_synonyms=True
        ),
        "the cluster": asked(BROKER, "", "log.retention.ms"),
        "another broker": asked(BROKER, "9", "log.retention.ms"),
        "no number of a broker": asked(BROKER, "x", "log.retention.ms"),
        "loggers": asked(LOGGER, "1", "root"),
        "loggers of another": asked(LOGGER, "9", "root"),
        "loggers of nobody": asked(LOGGER, "", "root"),
        "a subscription": asked(METRICS, "s", "interval.ms"),
        "a subscription without a name": asked(METRICS, "", "interval.ms"),
        "a group": asked(GROUP, "g", "consumer.session.timeout.ms"),
        "a group without a name": asked(GROUP, "", "consumer.session.timeout.ms"),
        "no kind of resource": asked(77, "x"),
        "kind 0": asked(0, "x"),
        "kind -1": asked(-1, "x"),
        "no resources": {"resources": []},
        "a topic twice": {
            "resources": [*asked(TOPIC, "plain", "retention.ms")["resources"]] * 2,
        },
    }


def _altered(operations: bool) -> Cases:
    def asked(kind: int, name: str, key: str, value: str | None, **given: Any) -> Mapping[str, Any]:
        config: dict[str, Any] = {"name": key, "value": value}
        if operations:
            config["config_operation"] = given.pop("operation", 0)
        resource = {"resource_type": kind, "resource_name": name, "configs": [config]}
        return {"resources": [resource], **given}

    key = "retention.ms"
    found: dict[str, Any] = {
        "a topic": asked(TOPIC, "altered", key, "1000"),
        "validated only": asked(TOPIC, "altered", key, "1001", validate_only=True),
        "null": asked(TOPIC, "altered", key, None),
        "an empty value": asked(TOPIC, "altered", key, ""),
        "no number": asked(TOPIC, "altered", key, "x"),
        "a number out of range": asked(TOPIC, "altered", key, "-2"),
        "no such key": asked(TOPIC, "altered", "nothing", "1"),
        "an empty key": asked(TOPIC, "altered", "", "1"),
        "an empty key of a group": asked(GROUP, "g", "", "1"),
        "an empty key of a broker": asked(BROKER, "1", "", "1"),
        "an empty key of a subscription": asked(METRICS, "s", "", "1"),
        "an unknown topic": asked(TOPIC, "unknown", key, "1"),
        "an invalid topic": asked(TOPIC, "a b", key, "1"),
        "an empty topic": asked(TOPIC, "", key, "1"),
        "another broker": asked(BROKER, "9", "log.cleaner.threads", "1"),
        "no number of a broker": asked(BROKER, "x", "log.cleaner.threads", "1"),
        "a key that is read only": asked(BROKER, "1", "node.id", "2"),
        "kind 77": asked(77, "x", key, "1"),
        "kind 0": asked(0, "x", key, "1"),
        "an empty subscription": asked(METRICS, "", "interval.ms", "1000"),
        "an empty group": asked(GROUP, "", "consumer.session.timeout.ms", "1000"),
        "a group": asked(GROUP, "g", "consumer.session.timeout.ms", "x"),
        "loggers of another": asked(LOGGER, "9", "root", "INFO"),
        "no resources": {"resources": []},
    }
    if operations:
        for operation, value in ((1, None), (2, "x"), (3, "x")):
            found[f"operation {operation}"] = asked(
                TOPIC, "altered", key, value, operation=operation
            )
        found["append to a list"] = asked(
            TOPIC, "altered", "cleanup.policy", "compact", operation=2
        )
        found["take from a list"] = asked(
            TOPIC, "altered", "cleanup.policy", "compact", operation=3
        )
        key = "max.message.bytes"
        found["delete what is not set"] = asked(TOPIC, "altered", key, None, operation=1)
    return found


def _create_topics() -> Cases:
    def topic(name: str, **given: Any) -> Mapping[str, Any]:
        return {"name": name, "num_partitions": 1, "replication_factor": 1, **given}

    def asked(*topics: Mapping[str, Any], **given: Any) -> Mapping[str, Any]:
        return {"topics": list(topics), "timeout_ms": 10_000, **given}

    def assigned(*assignments: Any, **given: Any) -> Mapping[str, Any]:
        entries = [
            {"partition_index": index, "broker_ids": list(brokers)}
            for index, brokers in assignments
        ]
        return {"num_partitions": -1, "replication_factor": -1, "assignments": entries, **given}

    new = "new-{v}"
    return {
        "a topic": asked(topic("created-{v}", configs=[{"name": "retention.ms", "value": "1000"}])),
        "validated only": asked(topic(new), validate_only=True),
        "defaults": asked(topic(new, num_partitions=-1, replication_factor=-1), validate_only=True),
        "one that is there": asked(topic("plain")),
        "an invalid name": asked(topic("a b")),
        "an empty name": asked(topic("")),
        "a dot": asked(topic(".")),
        "a long name": asked(topic(LONG)),
        "a name that collides": asked(topic("dotted_name")),
        "no partitions": asked(topic(new, num_partitions=0)),
        "-2 partitions": asked(topic(new, num_partitions=-2)),
        "max partitions": asked(topic(new, num_partitions=MAX32)),
        "no replicas": asked(topic(new, replication_factor=0)),
        "two replicas": asked(topic(new, replication_factor=2)),
        "-2 replicas": asked(topic(new, replication_factor=-2)),
        "max replicas": asked(topic(new, replication_factor=32767)),
        "a name twice": asked(topic(new), topic(new)),
        "a config there is not": asked(topic(new, configs=[{"name": "nothing", "value": "1"}])),
        "a config's value": asked(topic(new, configs=[{"name": "retention.ms", "value": "x"}])),
        "a config's null": asked(topic(new, configs=[{"name": "retention.ms", "value": None}])),
        "an assignment": asked(topic(new, **assigned((0, [1]))), validate_only=True),
        "an assignment and a number": asked(topic(new, **assigned((0, [1]), num_partitions=1))),
        "an unknown broker": asked(topic(new, **assigned((0, [9])))),
        "a broker twice": asked(topic(new, **assigned((0, [1, 1])))),
        "an empty assignment": asked(topic(new, **assigned((0, [])))),
        "a gap": asked(topic(new, **assigned((0, [1]), (2, [1])))),
        "a partition twice": asked(topic(new, **assigned((0, [1]), (0, [1])))),
        "no topics": asked(),
    }


def _topics() -> dict[ApiKey, Cases]:
    def partitions(name: str, count: int, **given: Any) -> Mapping[str, Any]:
        entry = {"name": name, "count": count, "assignments": given.pop("assignments", None)}
        return {"topics": [entry], "timeout_ms": 10_000, **given}

    def deleted(*states: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"topics": list(states), "timeout_ms": 10_000}

    def records(**given: Any) -> Cases:
        return _with(
            {
                **of_topics({"offset": 0}, "partition_index"),
                "beyond the end": {
                    "topics": [
                        {"name": "plain", "partitions": [{"partition_index": 0, "offset": 99}]}
                    ]
                },
                "offset -2": {
                    "topics": [
                        {"name": "plain", "partitions": [{"partition_index": 0, "offset": -2}]}
                    ]
                },
                "a compacted topic": {
                    "topics": [
                        {"name": "compact", "partitions": [{"partition_index": 0, "offset": 0}]}
                    ]
                },
            },
            **given,
        )

    return {
        ApiKey.CREATE_TOPICS: _create_topics(),
        ApiKey.DELETE_TOPICS: {
            "an unknown topic": {"topic_names": ["unknown"], "timeout_ms": 10_000},
            "a topic": {"topic_names": ["created-{v}"], "timeout_ms": 10_000},
            "an empty name": {"topic_names": [""], "timeout_ms": 10_000},
            "no topics": {"topic_names": [], "timeout_ms": 10_000},
            "by name": deleted({"name": "unknown"}),
            "by id": deleted({"name": None, "topic_id": UNKNOWN_ID}),
            "neither": deleted({"name": None}),
            "both": deleted({"name": "plain", "topic_id": Id("plain")}),
        },
        ApiKey.CREATE_PARTITIONS: {
            "validated only": partitions("altered", 5, validate_only=True),
            "as many": partitions("altered", 1),
            "fewer": partitions("plain", 1),
            "none": partitions("altered", 0),
            "-1": partitions("altered", -1),
            "an unknown topic": partitions("unknown", 5),
            "an empty name": partitions("", 5),
            "an assignment": partitions(
                "altered", 2, assignments=[{"broker_ids": [1]}], validate_only=True
            ),
            "too many assignments": partitions(
                "altered", 2, assignments=[{"broker_ids": [1]}, {"broker_ids": [1]}]
            ),
            "an unknown broker": partitions("altered", 2, assignments=[{"broker_ids": [9]}]),
            "an empty assignment": partitions("altered", 2, assignments=[{"broker_ids": []}]),
            "a topic twice": {
                "topics": [*partitions("altered", 3)["topics"]] * 2,
                "timeout_ms": 10_000,
            },
            "no topics": {"topics": [], "timeout_ms": 10_000},
        },
        ApiKey.DELETE_RECORDS: records(timeout_ms=5000),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: {
            **{
                f"{label}, epoch {epoch}": body
                for epoch in (0, -1, 99)
                for label, body in of_topics(
                    {"leader_epoch": epoch}, "partition", name="topic"
                ).items()
            },
            **{
                f"current epoch {epoch}": {
                    "topics": [
                        {
                            "topic": "plain",
                            "partitions": [
                                {"partition": 0, "leader_epoch": 0, "current_leader_epoch": epoch}
                            ],
                        }
                    ]
                }
                for epoch in (0, 1, -2)
            },
        },
        ApiKey.DESCRIBE_PRODUCERS: {
            label: {"topics": [{"name": name, "partition_indexes": list(indexes)}]}
            for label, name, indexes in (
                ("a partition", "plain", (0,)),
                ("an unknown partition", "plain", (99,)),
                ("an unknown topic", "unknown", (0,)),
                ("an invalid topic", "a b", (0,)),
                ("an empty topic", "", (0,)),
                ("no partitions", "plain", ()),
                ("a partition twice", "plain", (1, 1)),
            )
        },
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: {
            "a topic": {"topics": [{"name": "plain"}]},
            "all topics": {"topics": []},
            "an unknown topic": {"topics": [{"name": "unknown"}]},
            "an invalid topic": {"topics": [{"name": "a b"}]},
            "an empty topic": {"topics": [{"name": ""}]},
            "a topic twice": {"topics": [{"name": "plain"}, {"name": "plain"}]},
            "one partition": {"topics": [{"name": "plain"}], "response_partition_limit": 1},
            "no partitions": {"topics": [{"name": "plain"}], "response_partition_limit": 0},
            "-1 partitions": {"topics": [{"name": "plain"}], "response_partition_limit": -1},
            "a cursor": {
                "topics": [{"name": "plain"}],
                "cursor": {"topic_name": "plain", "partition_index": 1},
            },
            "a cursor beyond": {
                "topics": [{"name": "plain"}],
                "cursor": {"topic_name": "plain", "partition_index": 99},
            },
            "a negative cursor": {
                "topics": [{"name": "plain"}],
                "cursor": {"topic_name": "plain", "partition_index": -1},
            },
            "a cursor to no topic": {
                "topics": [{"name": "plain"}],
                "cursor": {"topic_name": "zzz", "partition_index": 0},
            },
        },
    }


def all_cases() -> dict[ApiKey, Cases]:
    """Return every request by its API."""
    return {
        ApiKey.PRODUCE: _produce(),
        ApiKey.FETCH: _fetch(),
        ApiKey.LIST_OFFSETS: _list_offsets(),
        ApiKey.METADATA: _metadata(),
        ApiKey.DESCRIBE_CONFIGS: _configs(),
        ApiKey.ALTER_CONFIGS: _altered(operations=False),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: _altered(operations=True),
        **groups(),
        **_topics(),
        **cluster(),
        ApiKey.API_VERSIONS: {
            "a name": {"client_software_name": "a", "client_software_version": "1"},
            "no name": {"client_software_name": "", "client_software_version": "1"},
            "a bad name": {"client_software_name": "-", "client_software_version": "1"},
            **{
                label: {
                    "client_software_name": "a",
                    "client_software_version": "1",
                    "cluster_id": cluster_id,
                    "node_id": node_id,
                }
                for label, cluster_id, node_id in (
                    ("another cluster", "other", 1),
                    ("an empty cluster", "", 1),
                    ("a cluster alone", "other", -1),
                    ("a node alone", None, 1),
                    ("a negative node", None, -2),
                )
            },
        },
    }
