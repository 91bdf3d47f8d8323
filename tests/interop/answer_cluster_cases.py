"""Requests about the cluster, quotas and users for `test_answers_compared.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from protocol.api_keys import ApiKey
from tests.interop.answer_values import MAX32, Cases


def cluster() -> dict[ApiKey, Cases]:
    def elected(kind: int, topic: str, *indexes: int) -> Mapping[str, Any]:
        entry = {"topic": topic, "partitions": list(indexes)}
        return {"election_type": kind, "topic_partitions": [entry], "timeout_ms": 10_000}

    def moved(topic: str, index: int, replicas: Any, **given: Any) -> Mapping[str, Any]:
        partition = {"partition_index": index, "replicas": replicas}
        topics = [{"name": topic, "partitions": [partition]}]
        return {"topics": topics, "timeout_ms": 10_000, **given}

    def moving(topic: str, *indexes: int) -> Mapping[str, Any]:
        topics = [{"name": topic, "partition_indexes": list(indexes)}]
        return {"topics": topics, "timeout_ms": 10_000}

    def feature(name: str, level: int, **given: Any) -> Mapping[str, Any]:
        update = {"feature": name, "max_version_level": level, **given}
        return {"feature_updates": [update], "timeout_ms": 10_000, "validate_only": True}

    def quorum(topic: str, *indexes: int) -> Mapping[str, Any]:
        partitions = [{"partition_index": index} for index in indexes]
        return {"topics": [{"topic_name": topic, "partitions": partitions}]}

    return {
        ApiKey.ELECT_LEADERS: {
            "nothing to do": elected(0, "plain", 0),
            "unclean, nothing to do": elected(1, "plain", 0),
            "all": {"election_type": 0, "topic_partitions": None, "timeout_ms": 10_000},
            "an unknown partition": elected(0, "plain", 99),
            "an unknown topic": elected(0, "unknown", 0),
            "no kind of election": elected(7, "plain", 0),
            "a negative kind": elected(-1, "plain", 0),
            "no topics": {"election_type": 0, "topic_partitions": [], "timeout_ms": 10_000},
        },
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: {
            "where it is": moved("plain", 0, [1]),
            "nothing to cancel": moved("plain", 0, None),
            "an unknown broker": moved("plain", 0, [9]),
            "no replicas": moved("plain", 0, []),
            "a broker twice": moved("plain", 0, [1, 1]),
            "a negative broker": moved("plain", 0, [-1]),
            "an unknown partition": moved("plain", 99, [1]),
            "an unknown topic": moved("unknown", 0, [1]),
            "no topics": {"topics": [], "timeout_ms": 10_000},
        },
        ApiKey.LIST_PARTITION_REASSIGNMENTS: {
            "all": {"topics": None, "timeout_ms": 10_000},
            "a partition": moving("plain", 0),
            "an unknown partition": moving("plain", 99),
            "an unknown topic": moving("unknown", 0),
            "no topics": {"topics": [], "timeout_ms": 10_000},
        },
        ApiKey.DESCRIBE_QUORUM: {
            "the metadata log": quorum("__cluster_metadata", 0),
            "another partition": quorum("__cluster_metadata", 1),
            "a topic": quorum("plain", 0),
            "an unknown topic": quorum("unknown", 0),
            "no partitions": quorum("__cluster_metadata"),
            "no topics": {"topics": []},
        },
        ApiKey.UPDATE_FEATURES: {
            "as it is": feature("group.version", 0),
            "metadata.version as it is": feature("metadata.version", 30),
            "above": feature("metadata.version", 32_000),
            "below": feature("metadata.version", 1, upgrade_type=2),
            "downgrade by an upgrade": feature("metadata.version", 29),
            "-1": feature("metadata.version", -1),
            "no such feature": feature("nothing", 1),
            "no such feature, level 0": feature("nothing", 0),
            "an empty name": feature("", 1),
            "no kind of upgrade": feature("group.version", 0, upgrade_type=9),
            "deletion of metadata.version": feature("metadata.version", 0, upgrade_type=3),
            "twice": {
                "feature_updates": [{"feature": "group.version", "max_version_level": 0}] * 2,
                "timeout_ms": 10_000,
                "validate_only": True,
            },
            "none": {"feature_updates": [], "timeout_ms": 10_000, "validate_only": True},
        },
        ApiKey.DESCRIBE_CLUSTER: {
            "brokers": {},
            "with operations": {"include_cluster_authorized_operations": True},
            "controllers": {"endpoint_type": 2},
            "kind 0": {"endpoint_type": 0},
            "kind 9": {"endpoint_type": 9},
            "fenced ones": {"include_fenced_brokers": True},
        },
        ApiKey.UNREGISTER_BROKER: {
            "an unknown broker": {"broker_id": 9},
            "a negative one": {"broker_id": -1},
            "the greatest": {"broker_id": MAX32},
        },
        ApiKey.UNREGISTER_CONTROLLER: {
            "an unknown controller": {"controller_id": 9},
            "the active controller": {"controller_id": 1},
            "a negative one": {"controller_id": -1},
            "the greatest": {"controller_id": MAX32},
        },
        ApiKey.DESCRIBE_LOG_DIRS: {
            label: {"topics": [{"topic": name, "partitions": list(indexes)}]}
            for label, name, indexes in (
                ("a partition", "plain", (1,)),
                ("an unknown partition", "plain", (99,)),
                ("an unknown topic", "unknown", (0,)),
                ("an invalid topic", "a b", (0,)),
                ("no partitions", "plain", ()),
            )
        }
        | {"no topics": {"topics": []}},
        ApiKey.LIST_CONFIG_RESOURCES: {
            "all": {"resource_types": []},
            **{f"kind {kind}": {"resource_types": [kind]} for kind in (0, 2, 4, 8, 16, 32, 77, -1)},
            "two kinds": {"resource_types": [16, 32]},
            "a kind twice": {"resource_types": [16, 16]},
        },
        ApiKey.DESCRIBE_CLIENT_QUOTAS: _quotas(),
        ApiKey.ALTER_CLIENT_QUOTAS: _altered_quotas(),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: {
            "all": {"users": None},
            "none": {"users": []},
            "a user": {"users": [{"name": "alice"}]},
            "an unknown user": {"users": [{"name": "bob"}]},
            "an empty name": {"users": [{"name": ""}]},
            "a user twice": {"users": [{"name": "alice"}, {"name": "alice"}]},
            "an unknown user twice": {"users": [{"name": "bob"}, {"name": "bob"}]},
        },
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _scram(),
        ApiKey.DESCRIBE_ACLS: {
            "all": {
                "resource_type_filter": 1,
                "resource_name_filter": None,
                "principal_filter": None,
                "host_filter": None,
                "pattern_type_filter": 1,
                "operation": 1,
                "permission_type": 1,
            },
        },
        ApiKey.CREATE_ACLS: {
            "one": {
                "creations": [
                    {
                        "resource_type": 2,
                        "resource_name": "plain",
                        "principal": "User:u",
                        "host": "*",
                        "operation": 3,
                        "permission_type": 3,
                    }
                ]
            },
            "none": {"creations": []},
        },
        ApiKey.DELETE_ACLS: {
            "one": {
                "filters": [
                    {
                        "resource_type_filter": 2,
                        "resource_name_filter": "plain",
                        "principal_filter": None,
                        "host_filter": None,
                        "operation": 1,
                        "permission_type": 1,
                    }
                ]
            },
            "none": {"filters": []},
        },
    }


def _quotas() -> Cases:
    def asked(*components: tuple[str, int, str | None], **given: Any) -> Mapping[str, Any]:
        entries = [
            {"entity_type": kind, "match_type": match, "match": value}
            for kind, match, value in components
        ]
        return {"components": entries, **given}

    return {
        "all": asked(),
        "all, strict": asked(strict=True),
        "a client": asked(("client-id", 0, "c")),
        "the default client": asked(("client-id", 1, None)),
        "any client": asked(("client-id", 2, None)),
        "an unknown client": asked(("client-id", 0, "nobody")),
        "a user": asked(("user", 2, None)),
        "an address": asked(("ip", 0, "127.0.0.1")),
        "no address": asked(("ip", 0, "nowhere.invalid")),
        "no kind": asked(("nothing", 0, "x")),
        "an empty kind": asked(("", 0, "x")),
        "no kind of match": asked(("client-id", 7, None)),
        "an exact match of null": asked(("client-id", 0, None)),
        "a default with a name": asked(("client-id", 1, "x")),
        "a kind twice": asked(("client-id", 0, "c"), ("client-id", 0, "d")),
        "address and user": asked(("ip", 2, None), ("user", 2, None)),
    }


def _altered_quotas() -> Cases:
    def asked(
        entity: Sequence[tuple[str, str | None]], *ops: tuple[str, float, bool], **given: Any
    ) -> Mapping[str, Any]:
        entry = {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
            "ops": [{"key": key, "value": value, "remove": remove} for key, value, remove in ops],
        }
        return {"entries": [entry], **given}

    rate = ("consumer_byte_rate", 1000.0, False)
    client = (("client-id", "d"),)
    return {
        "validated only": asked(client, rate, validate_only=True),
        "a client": asked(client, rate),
        "removed": asked(client, ("consumer_byte_rate", 0.0, True)),
        "removed again": asked(client, ("consumer_byte_rate", 0.0, True)),
        "no such key": asked(client, ("nothing", 1.0, False)),
        "a key of addresses": asked(client, ("connection_creation_rate", 1.0, False)),
        "nothing": asked(client),
        "zero": asked(client, ("consumer_byte_rate", 0.0, False)),
        "negative": asked(client, ("consumer_byte_rate", -1.0, False)),
        "a fraction": asked(client, ("consumer_byte_rate", 1.5, False)),
        "no kind": asked([("nothing", "x")], rate),
        "no entity": asked([], rate),
        "an empty name": asked([("client-id", "")], rate),
        "address and user": asked([("ip", "127.0.0.1"), ("user", "u")], rate),
        "no entries": {"entries": []},
    }


def _scram() -> Cases:
    def upserted(**given: Any) -> Mapping[str, Any]:
        one = {
            "name": "carol",
            "mechanism": 1,
            "iterations": 4096,
            "salt": b"salt",
            "salted_password": b"p" * 32,
            **given,
        }
        return {"upsertions": [one], "deletions": []}

    def gone(name: str, mechanism: int) -> Mapping[str, Any]:
        return {"upsertions": [], "deletions": [{"name": name, "mechanism": mechanism}]}

    return {
        "a user": upserted(),
        "an empty name": upserted(name=""),
        "mechanism 0": upserted(mechanism=0),
        "mechanism 9": upserted(mechanism=9),
        "few iterations": upserted(iterations=1),
        "many iterations": upserted(iterations=MAX32),
        "no salt": upserted(salt=b""),
        "no password": upserted(salted_password=b""),
        "deleted": gone("carol", 1),
        "deleted again": gone("carol", 1),
        "an unknown user": gone("bob", 1),
        "an unknown mechanism of a user": gone("alice", 9),
        "nothing": {"upsertions": [], "deletions": []},
        "both": {
            "upsertions": list(upserted()["upsertions"]),
            "deletions": list(gone("carol", 1)["deletions"]),
        },
        "both, of a user there is": {
            "upsertions": list(upserted(name="alice")["upsertions"]),
            "deletions": list(gone("alice", 1)["deletions"]),
        },
        "written twice": {"upsertions": list(upserted()["upsertions"]) * 2, "deletions": []},
        "deleted twice": {"upsertions": [], "deletions": list(gone("alice", 1)["deletions"]) * 2},
    }
