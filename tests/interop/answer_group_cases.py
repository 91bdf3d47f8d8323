"""Requests about groups and offsets for `test_answers_compared.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from protocol.api_keys import ApiKey
from testkit.kafka.compared import Id
from tests.interop.answer_values import (
    EXTREMES,
    MAX32,
    MAX64,
    NOT_THERE,
    UNKNOWN_ID,
    Cases,
    of_topics,
)


def _commit_topics() -> Cases:
    def asked(topic: str, index: int = 0, **given: Any) -> Mapping[str, Any]:
        partition = {"partition_index": index, "committed_offset": 3, **given}
        entry: dict[str, Any] = {"name": topic, "partitions": [partition]}
        entry["topic_id"] = Id("plain") if topic == "plain" else UNKNOWN_ID
        return {"topics": [entry]}

    return {
        "a commit": asked("plain"),
        "with metadata": asked("plain", committed_metadata="m", committed_leader_epoch=0),
        "null metadata": asked("plain", committed_metadata=None),
        "long metadata": asked("plain", committed_metadata="m" * 5000),
        "offset -1": asked("plain", committed_offset=-1),
        "offset -2": asked("plain", committed_offset=-2),
        "the greatest offset": asked("plain", committed_offset=MAX64),
        "an unknown partition": asked("plain", 99),
        "a negative partition": asked("plain", -1),
        "an unknown topic": asked("unknown"),
        "an invalid topic": asked("a b"),
        "no topics": {"topics": []},
    }


def _offset_commit() -> Cases:
    found = {label: {"group_id": "g", **body} for label, body in _commit_topics().items()}
    one = _commit_topics()["a commit"]
    found["an empty group"] = {"group_id": "", **one}
    for epoch in EXTREMES:
        found[f"generation {epoch}"] = {
            "group_id": "g",
            "generation_id_or_member_epoch": epoch,
            **one,
        }
    found["a member of an empty group"] = {
        "group_id": "g",
        "generation_id_or_member_epoch": 1,
        "member_id": "m",
        **one,
    }
    found["a member of an unknown group"] = {
        "group_id": "unknown-{v}",
        "generation_id_or_member_epoch": 1,
        "member_id": "m",
        **one,
    }
    found["an instance of an unknown group"] = {
        "group_id": "unknown-{v}",
        "group_instance_id": "i",
        **one,
    }
    return found


def _offset_fetch() -> Cases:
    def one(group: str, topic: str | None, *partitions: int) -> Mapping[str, Any]:
        topics = None if topic is None else [{"name": topic, "partition_indexes": [*partitions]}]
        return {"group_id": group, "topics": topics}

    def several(*groups: Any) -> Mapping[str, Any]:
        return {"groups": list(groups)}

    def in_groups(asked: Mapping[str, Any]) -> Mapping[str, Any]:
        topics = asked["topics"]
        if topics is not None:
            known = {"plain": Id("plain")}
            topics = [
                {**topic, "topic_id": known.get(topic["name"], UNKNOWN_ID)} for topic in topics
            ]
        return {"group_id": asked["group_id"], "topics": topics}

    asked = {
        "a partition": one("kept", "plain", 0),
        "a partition without one": one("kept", "plain", 1),
        "an unknown partition": one("kept", "plain", 99),
        "a negative partition": one("kept", "plain", -1),
        "an unknown topic": one("kept", "unknown", 0),
        "an invalid topic": one("kept", "a b", 0),
        "no partitions": one("kept", "plain"),
        "a partition twice": one("kept", "plain", 0, 0),
        "all topics": one("kept", None),
        "an unknown group": one("unknown", "plain", 0),
        "all topics of an unknown group": one("unknown", None),
        "an empty group id": one("", "plain", 0),
        "no topics": {"group_id": "kept", "topics": []},
    }
    found: dict[str, Any] = dict(asked)
    for label, body in asked.items():
        found[f"{label}, in a list"] = several(in_groups(body))
        found[f"{label}, stable"] = {**body, "require_stable": True}
    found["two groups"] = several(
        *(in_groups(asked[label]) for label in ("a partition", "an unknown group"))
    )
    found["a group twice"] = several(*[in_groups(asked["a partition"])] * 2)
    found["no groups"] = several()
    found["a member"] = several({**in_groups(asked["a partition"]), "member_id": "m"})
    found["a member epoch"] = several(
        {**in_groups(asked["a partition"]), "member_id": "m", "member_epoch": 7}
    )
    return found


def _join_group() -> Cases:
    def asked(**given: Any) -> Mapping[str, Any]:
        return {
            # Kafka would create an empty group for an unknown id, and we none.
            "group_id": "kept",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"m"}],
            **given,
        }

    return {
        "an empty group id": asked(group_id=""),
        "a short session": asked(session_timeout_ms=1),
        "a long session": asked(session_timeout_ms=MAX32),
        "a negative session": asked(session_timeout_ms=-1),
        "an unknown member": asked(member_id="unknown"),
        "an unknown member of an instance": asked(member_id="unknown", group_instance_id="i"),
        "no protocols": asked(protocols=[]),
        "no protocol type": asked(protocol_type=""),
    }


def groups() -> dict[ApiKey, Cases]:
    def member(**given: Any) -> Mapping[str, Any]:
        return {"group_id": "kept", "member_id": "m", "generation_id": 1, **given}

    simple: Cases = {
        "an empty group": member(),
        "an unknown group": member(group_id="unknown"),
        "an empty group id": member(group_id=""),
        "an empty member": member(member_id=""),
        "generation -1": member(generation_id=-1),
        "generation max": member(generation_id=MAX32),
        "an instance": member(group_instance_id="i"),
    }
    sync = {
        **{
            label: {**body, "protocol_type": "consumer", "protocol_name": "range"}
            for label, body in simple.items()
        },
        "no protocol": member(),
        "assignments": member(assignments=[{"member_id": "m", "assignment": b"a"}]),
    }
    leave: dict[str, Any] = {
        "a member": {"group_id": "kept", "member_id": "m"},
        "of an unknown group": {"group_id": "unknown", "member_id": "m"},
        "of an empty group id": {"group_id": "", "member_id": "m"},
        "no members": {"group_id": "kept", "members": []},
        "no members of an unknown group": {"group_id": "unknown", "members": []},
    }
    for group in ("kept", "unknown", ""):
        leave[f"members of {group!r}"] = {
            "group_id": group,
            "members": [{"member_id": "m"}, {"member_id": "", "group_instance_id": "i"}],
        }
    described: dict[str, Any] = {
        label: {"groups": groups}
        for label, groups in {
            "a group": ["kept"],
            "an unknown group": ["unknown"],
            "an empty group id": [""],
            "no groups": [],
            "two": ["kept", "unknown"],
            "a group twice": ["kept", "kept"],
        }.items()
    }
    for label in ("a group", "an unknown group"):
        described[f"operations of {label}"] = {
            **described[label],
            "include_authorized_operations": True,
        }
    return {
        ApiKey.OFFSET_COMMIT: _offset_commit(),
        ApiKey.OFFSET_FETCH: _offset_fetch(),
        ApiKey.LIST_GROUPS: {
            "all": {},
            "by state": {"states_filter": ["Empty"]},
            "by a state in capitals": {"states_filter": ["EMPTY"]},
            "by another state": {"states_filter": ["Stable"]},
            "by no state there is": {"states_filter": ["Nothing"]},
            "by type": {"types_filter": ["classic"]},
            "by another type": {"types_filter": ["consumer"]},
            "by no type there is": {"types_filter": ["Nothing"]},
        },
        ApiKey.JOIN_GROUP: _join_group(),
        ApiKey.SYNC_GROUP: sync,
        ApiKey.HEARTBEAT: simple,
        ApiKey.LEAVE_GROUP: leave,
        ApiKey.DESCRIBE_GROUPS: described,
        ApiKey.DELETE_GROUPS: {
            "an unknown group": {"groups_names": ["unknown"]},
            "an empty group id": {"groups_names": [""]},
            "no groups": {"groups_names": []},
            "a group twice": {"groups_names": ["unknown", "unknown"]},
            "a group": {"groups_names": ["gone-{v}"]},
        },
        ApiKey.OFFSET_DELETE: {
            "an unknown group": {
                "group_id": "unknown",
                "topics": [{"name": "plain", "partitions": [{"partition_index": 0}]}],
            },
            **{
                label: {**body, "group_id": "kept"}
                for label, body in of_topics({}, "partition_index").items()
                if label in NOT_THERE
            },
            "an empty group id": {"group_id": "", "topics": []},
        },
        ApiKey.CONSUMER_GROUP_HEARTBEAT: {
            "a member": {"group_id": "g", "member_id": "m", "subscribed_topic_names": ["plain"]},
            "an empty group id": {"group_id": "", "member_id": "m"},
            "epoch -2": {"group_id": "g", "member_id": "m", "member_epoch": -2},
        },
        ApiKey.FIND_COORDINATOR: {
            "a group": {"key": "g"},
            "an empty group id": {"key": ""},
            "a key type": {"key": "g", "key_type": 9},
            "a negative key type": {"key": "g", "key_type": -1},
            "a share group": {"key": "g", "key_type": 2},
            "groups": {"coordinator_keys": ["g", "h"]},
            "a group twice": {"coordinator_keys": ["g", "g"]},
            "an empty group id in a list": {"coordinator_keys": [""]},
            "no groups": {"coordinator_keys": []},
            "a key type of a list": {"coordinator_keys": ["g"], "key_type": 9},
            "share groups": {"coordinator_keys": ["g"], "key_type": 2},
            "share partitions": {
                "coordinator_keys": ["g:AAAAAAAAAAAAAAAAAAAAAQ:0"],
                "key_type": 2,
            },
        },
        ApiKey.INIT_PRODUCER_ID: {
            "a producer": {"transactional_id": None, "transaction_timeout_ms": 60_000},
            "an empty transactional id": {"transactional_id": "", "transaction_timeout_ms": 1000},
            "a timeout of nothing": {"transactional_id": None, "transaction_timeout_ms": 0},
            "a negative timeout": {"transactional_id": None, "transaction_timeout_ms": -1},
            "id and epoch": {"transactional_id": None, "producer_id": 7, "producer_epoch": 1},
            "an id alone": {"transactional_id": None, "producer_id": 7},
            "an epoch alone": {"transactional_id": None, "producer_epoch": 1},
            "id -2": {"transactional_id": None, "producer_id": -2, "producer_epoch": -2},
        },
    }
