"""Planted bugs of consumer groups: who owns what, in which generation."""

from __future__ import annotations

from testkit.planting import bug as _bug

REBALANCE = "broker.coordinators.group.rebalance"
EXPIRY = "broker.coordinators.group.expiry"
MEMBERSHIP = "broker.coordinators.group.membership"

GROUPS = [
    _bug(
        "shares change hands",
        "coordinators",
        "G3",
        "each member gets what the leader has planned for the next one",
        (
            f"{REBALANCE}:assign",
            "assignments.get(member.member_id, NO_ASSIGNMENT)",
            "dict(zip(assignments, [*assignments.values()][1:] + [*assignments.values()][:1]))"
            "[member.member_id]",
        ),
    ),
    _bug(
        "heartbeats are always well",
        "coordinators",
        "G3",
        "a heartbeat is answered well whatever has become of its member and its generation",
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
        "nobody misses who left",
        "coordinators",
        "G4",
        "a stable group stays so when a member leaves",
        (
            f"{REBALANCE}:after_removal",
            "if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):",
            "if group.state is GroupState.COMPLETING_REBALANCE:",
        ),
    ),
    _bug(
        "a stable group lets wait",
        "coordinators",
        "G4",
        "who joins a stable group waits for a rebalance that nobody begins",
        (
            f"{REBALANCE}:rebalance_or_complete",
            "else:",
            "elif group.state is not GroupState.STABLE:",
        ),
    ),
    _bug(
        "an empty group begins anew",
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
        "a rebalance waits for the dead",
        "coordinators",
        "P26|G7",
        "a join phase waits for every member, however long, and nobody's session ends",
        (
            f"{REBALANCE}:start_rebalance",
            "core.set_group_timer(TimerKind.JOIN, group, now, group.rebalance_timeout_ms)",
            "pass",
        ),
        (f"{REBALANCE}:on_session_timer", "if waits and not member.is_new:", "if True:"),
    ),
    _bug(
        "offsets end at once",
        "coordinators",
        "G9",
        "an offset ends before the time that its commit asked for",
        (f"{EXPIRY}:_is_too_old", "now.wall_ms >= committed.expire_timestamp_ms", "True"),
    ),
    _bug(
        "offsets never end",
        "coordinators",
        "G9",
        "nobody looks how old offsets are",
        (
            f"{EXPIRY}:_is_expired",
            "return _is_too_old(core, group, at, committed, now)",
            "return False",
        ),
    ),
    _bug(
        "what members read ends",
        "coordinators",
        "G9",
        "old offsets end though members of the group read the topic",
        (f"{EXPIRY}:_is_too_old", "if group.is_subscribed(at.topic):", "if False:"),
    ),
    _bug(
        "a leader assigns twice",
        "coordinators",
        "G8|G1|G2",
        "a leader's second assignment is appended while the first is not committed",
        (
            f"{MEMBERSHIP}:decide_sync",
            "if group.leader == member.member_id and not group.assignment_under_way:",
            "if group.leader == member.member_id:",
        ),
    ),
    _bug(
        "a timer outlives its group",
        "coordinators",
        "F|P26",
        "a timer of a group that was dropped fires on a later one of the same name",
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
        "offsets go by the name",
        "coordinators",
        "G9",
        "an offset counts for any topic of its name",
        (
            "broker.coordinators.group.deleted_topics:is_stale",
            "return value.topic_id != topic_id",
            "return False",
        ),
    ),
]
