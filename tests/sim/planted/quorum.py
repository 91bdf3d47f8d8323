"""The planted bugs of the metadata quorum."""

from __future__ import annotations

from testkit.planting import Bug, bug

LEADING = "metalog.quorum.core.leading:Leading"
FOLLOWING = "metalog.quorum.core.following:Following"
ELECTING = "metalog.quorum.core.electing:Electing"
EFFECTS = "metalog.quorum.effects:LogEffects"
DRIVER = "metalog.quorum.driver:CoreDriver"
REQUESTS = "metalog.quorum.peer_requests:PeerRequests"

FETCHES_AT_ONCE = (
    (
        f"{FOLLOWING}._may_send",
        "if self._replica.flushed_end < self._replica.log.end_offset:",
        "if False:",
    ),
    (
        f"{EFFECTS}._append_fetched",
        "self._appended()",
        """self._appended()
    effects = self._core._replica.effects
    known = len(effects)
    self._core._following._fetch()
    self._driver._queue.extend(effects[known:])""",
    ),
)
"""Let a fetch be sent before the records of the one before it are flushed. Waiting for the flush
would hide the bug."""
QUORUM: tuple[Bug, ...] = (
    bug(
        "vote before disk",
        "quorum",
        "M3",
        "a vote is sent before quorum-state is durable",
        (f"{DRIVER}.drain", "while self._queue and not self.is_persisting:", "while self._queue:"),
    ),
    bug(
        "quorum-state not written",
        "quorum",
        "M2|M3|M1|F",
        "a voter does not write quorum-state",
        (
            "metalog.quorum.effects:StateEffects.persist",
            "if self.writes_at_once:",
            "if not self.writes_at_once:\n        return\n    if self.writes_at_once:",
        ),
    ),
    bug(
        "second vote",
        "quorum",
        "M1|M3|F",
        "a voter votes twice in one epoch",
        (f"{ELECTING}._may_grant", "return replica.voted == event.candidate", "return up_to_date"),
        (f"{ELECTING}.on_vote_requested", "and replica.voted is None:", ":"),
    ),
    bug(
        "second vote, other disk",
        "quorum",
        "M3",
        "a voter compares only the candidate's id, not its directory id",
        (
            f"{ELECTING}._may_grant",
            "return replica.voted == event.candidate",
            "return replica.voted.id == event.candidate.id",
        ),
        situation=(
            (
                f"{REQUESTS}._vote",
                "response = await self._peers.request(self._address(effect.to), request)",
                """response = await self._peers.request(self._address(effect.to), request)
    if not effect.pre_vote:
        other = config.node._replace(directory_id=bytes(range(16)))
        again = wire.vote_request(effect, config.cluster_id, other, voter.key)
        await self._peers.request(self._address(effect.to), again)""",
            ),
        ),
    ),
    bug(
        "vote for a shorter log",
        "quorum",
        "M|P5|F",
        "a voter does not compare the logs before it votes",
        (
            f"{ELECTING}._may_grant",
            "(event.last.epoch, event.last.offset) >= (log.last_epoch, log.end_offset)",
            "True",
        ),
    ),
    bug(
        "elected by its own vote",
        "quorum",
        "M1|F",
        "a candidate counts one vote as a majority",
        (
            f"{ELECTING}._count_votes",
            "if len(election.granting_ids) >= voters.majority:",
            "if len(election.granting_ids) >= 1:",
        ),
    ),
    bug(
        "leader without majority",
        "quorum",
        "M17",
        "a leader stays although a majority sends no Fetch",
        (
            f"{LEADING}.tick",
            "if state.check_deadline_ms is not None and now_ms >= state.check_deadline_ms:",
            "if False:",
        ),
        (f"{LEADING}.begin", "state.check_deadline_ms = self._check_quorum_deadline()", "pass"),
        (
            f"{LEADING}.voters_changed",
            "state.check_deadline_ms = self._check_quorum_deadline()",
            "pass",
        ),
        (
            f"{LEADING}._voter_fetched",
            "state.check_deadline_ms = self._check_quorum_deadline()",
            "pass",
        ),
    ),
    bug(
        "leader forgets its own epoch",
        "quorum",
        "M1|M3|F",
        "a restarted leader may follow, vote and lead in the epoch that it led",
        (
            "metalog.quorum.core.quorum:QuorumCore._on_start",
            "elif replica.leader_id == replica.node.id:",
            "elif False:",
        ),
        (
            "metalog.quorum.core.quorum:QuorumCore._on_start",
            "elif replica.leader_id is not None and replica.leader_endpoints():",
            "elif replica.leader_id not in (None, replica.node.id) and replica.leader_endpoints():",
        ),
    ),
    bug(
        "commit by the leader alone",
        "quorum",
        "M|P5|F",
        "the quorum commits up to the largest log end",
        (f"{LEADING}.advance_high_watermark", "ends[replica.voters.majority - 1]", "ends[0]"),
    ),
    bug(
        "leader counts unflushed",
        "quorum",
        "M|P5|F",
        "a quorum leader counts its own records before it has flushed them",
        (
            f"{LEADING}.advance_high_watermark",
            "ends.append(replica.flushed_end)",
            "ends.append(replica.log.end_offset)",
        ),
    ),
    bug(
        "follower commits unflushed",
        "quorum",
        "M|P5|F",
        "a quorum follower treats unflushed records as committed, and fetches more at once",
        (
            f"{FOLLOWING}._follow_high_watermark",
            "self._replica.flushed_end",
            "self._replica.log.end_offset",
        ),
        *FETCHES_AT_ONCE,
    ),
    bug(
        "fetch before flush",
        "quorum",
        "M|P5|F",
        "a quorum follower fetches past records that it has not flushed",
        *FETCHES_AT_ONCE,
    ),
    bug(
        "metadata not flushed",
        "quorum",
        "M|P5|P16|F",
        "the metadata log is never flushed",
        (
            "metalog.quorum.log:MetadataLog.flush",
            "return await self._log.flush()",
            "return self.end_offset",
        ),
    ),
    bug(
        "wiped disk counted",
        "quorum",
        "M8",
        "a static voter counts with the log end of any disk that its id ever had",
        (
            f"{LEADING}._replace_directory",
            "return min((state.replicas.pop(known).end_offset for known in earlier), default=None)",
            "return None",
        ),
        (f"{LEADING}._replica_end", "return min((", "return max(("),
    ),
    bug(
        "quorum high watermark decreases",
        "quorum",
        "M7|F",
        "the quorum's high watermark may decrease",
        (
            "metalog.quorum.core.replica:Replica.commit_below",
            "if offset > (self.high_watermark or 0):",
            "if offset != (self.high_watermark or 0):",
        ),
    ),
)
