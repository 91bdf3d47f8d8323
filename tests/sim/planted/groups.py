"""Planted bugs of consumer groups: assignments, generations and offsets."""

from __future__ import annotations

from testkit.planting import bug as _bug

REBALANCE = "broker.coordinators.group.rebalance"
EXPIRY = "broker.coordinators.group.expiry"
MEMBERSHIP = "broker.coordinators.group.membership"

GROUPS = [
    _bug(
        "assignments exchanged",
        "coordinators",
        "G3",
        "each member gets the assignment of the next member",
        (
            f"{REBALANCE}:assign",
            "assignments.get(member.member_id, NO_ASSIGNMENT)",
            "dict(zip(assignments, [*assignments.values()][1:] + [*assignments.values()][:1]))"
            "[member.member_id]",
        ),
    ),
    _bug(
        "heartbeats always succeed",
        "coordinators",
        "G3",
        "a heartbeat succeeds whatever its member and its generation",
        (
            f"{MEMBERSHIP}:decide_heartbeat",
            "return heartbeat_error(code or ErrorCode.UNKNOWN_MEMBER_ID)",
            "return heartbeat_error(ErrorCode.NONE)",
        ),
        (
            f"{MEMBERSHIP}:decide_heartbeat",
            "HEARTBEAT_ANSWERS[group.state]",
            "ErrorCode.NONE",
        ),
    ),
    _bug(
        "leaving starts no rebalance",
        "coordinators",
        "G4",
        "a stable group stays stable when a member leaves",
        (
            f"{REBALANCE}:after_removal",
            "if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):",
            "if group.state is GroupState.COMPLETING_REBALANCE:",
        ),
    ),
    _bug(
        "joining starts no rebalance",
        "coordinators",
        "G4",
        "a member that joins a stable group waits, and no rebalance starts",
        (
            f"{REBALANCE}:rebalance_or_complete",
            "else:",
            "elif group.state is not GroupState.STABLE:",
        ),
    ),
    _bug(
        "empty group forgets its generation",
        "coordinators",
        "G5",
        "a group that becomes empty forgets its generation",
        (
            "broker.coordinators.group.live_group:LiveGroup.begin_generation",
            "self.generation = self.generation + 1 if self.generation < 2**31 - 1 else 0",
            "self.generation = self.generation + 1 if self.members else 0",
        ),
    ),
    _bug(
        "rebalance waits for dead members",
        "coordinators",
        "P26|G7",
        "a join phase waits for every member, and no session expires",
        (
            f"{REBALANCE}:start_rebalance",
            "core.set_group_timer(TimerKind.JOIN, group, now, group.rebalance_timeout_ms)",
            "pass",
        ),
        (f"{REBALANCE}:on_session_timer", "if waits and not member.is_new:", "if True:"),
    ),
    _bug(
        "offsets expire at once",
        "coordinators",
        "G9",
        "an offset expires before the retention time of its commit",
        (f"{EXPIRY}:_is_too_old", "now.wall_ms >= committed.expire_timestamp_ms", "True"),
    ),
    _bug(
        "offsets never expire",
        "coordinators",
        "G9",
        "a coordinator does not check the age of offsets",
        (
            f"{EXPIRY}:_is_expired",
            "return _is_too_old(core, group, at, committed, now)",
            "return False",
        ),
    ),
    _bug(
        "offsets of subscribed topics expire",
        "coordinators",
        "G9",
        "old offsets expire although members of the group subscribe to the topic",
        (f"{EXPIRY}:_is_too_old", "if group.is_subscribed(at.topic):", "if False:"),
    ),
    _bug(
        "second assignment accepted",
        "coordinators",
        "G8|G1|G2",
        "a leader's second assignment is appended while the first is uncommitted",
        (
            f"{MEMBERSHIP}:decide_sync",
            "if group.leader == member.member_id and not group.assignment_under_way:",
            "if group.leader == member.member_id:",
        ),
    ),
    _bug(
        "timer outlives its group",
        "coordinators",
        "F|P26",
        "a timer of a dropped group fires on a later group of the same name",
        (
            "broker.coordinators.group.core:Core.drop",
            "for kind in GROUP_TIMERS:",
            "for kind in ():",
        ),
        (
            "broker.coordinators.group.shard:GroupShard.on_deadline",
            "if group is not None and mine and group.state in TIMER_STATES[key.kind]:",
            "if group is not None:",
        ),
    ),
    _bug(
        "offsets found by topic name",
        "coordinators",
        "G9",
        "an offset counts for any topic with that name",
        (
            "broker.coordinators.group.deleted_topics:is_stale",
            "return value.topic_id != topic_id",
            "return False",
        ),
    ),
]
