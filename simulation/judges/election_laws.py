"""The laws of elections (P21, P22), by the committed records and the log answers of brokers.

Each record that gives a partition another leader is judged as it is committed: the elected replica,
the set that it came from, and the permission by strategy, manager and operators' requests. For an
election by the longest log the answers are known, too (`answered` is called as a broker gives one).
The winner is unfenced in the incarnation in which it answered. Balanced needs an answer of each
replica that may have every record, and none of these has more than the winner.

Losses of topics that operators gave up are not judged; the rules by which they lose records are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

from metalog.image.values import (
    LOSSY_ELECTIONS,
    ElectedAs,
    LeaderRecoveryState,
    MetadataImage,
    PartitionImage,
)
from protocol.ids import RESERVED_UUIDS
from protocol.metadata import PartitionChangeRecord, PartitionRecord
from simulation.judges.election_truth import ElectionTruth, least_isr
from simulation.shapes.shape import AGGRESSIVE, NOBODY
from simulation.world.invariants import Key, require

BY_OPERATOR = "operator-request"


class Answer(NamedTuple):
    """A broker's answer about a replica, in one broker epoch and leader epoch."""

    last_epoch: int
    end: int


class Election(NamedTuple):
    """A record that names another leader; `image` is from before it. `now_s` is the time when it
    was seen as committed, `written_ms` its controller's wall clock time."""

    where: str
    topic: str
    key: Key
    image: MetadataImage
    old: PartitionImage
    new: PartitionImage
    record: PartitionChangeRecord | PartitionRecord
    now_s: float
    written_ms: int = 0

    @property
    def kind(self) -> ElectedAs:
        return ElectedAs(getattr(self.record, "election_kind", 0))

    @property
    def elr(self) -> tuple[int, ...]:
        """The members of the ELR that are eligible. An ELR left from before the feature was turned
        off does not count (seed 5490)."""
        return self.old.elr if self.image.elr_enabled else ()

    @property
    def alone(self) -> bool:
        """True if the leader is the only member of ISR and ELR."""
        return self.new.isr == (self.new.leader,) and self.new.leader not in self.new.elr

    @property
    def begins_anew(self) -> bool:
        """True if the leader's directory on record is gone with all its records, and another one
        replaces it: then it was a member by name alone.

        A replica that was in neither ISR nor ELR, and joins the ISR as a reassignment ends, has
        caught up in that other directory (seed 623).
        """
        was = self.old.directory_of(self.new.leader)
        broker = self.image.cluster.brokers.get(self.new.leader)
        if self.new.leader not in (*self.old.isr, *self.elr):
            return False
        if was is None or broker is None or was in RESERVED_UUIDS:
            return False
        return was not in broker.directories and was != self.new.directory_of(self.new.leader)

    def fenced(self, broker_id: int) -> bool:
        broker = self.image.cluster.brokers.get(broker_id)
        return broker is None or broker.fenced


class ElectionLaws:
    """Judges elections. `asked` has topic and index of elections that operators have requested
    whatever is configured, entered before the request."""

    def __init__(self, truth: ElectionTruth, given_up: Collection[str]) -> None:
        self._truth = truth
        self._given_up = given_up
        self.asked: set[tuple[str, int]] = set()
        self.committed: Counter[ElectedAs] = Counter()
        """Elections by their actual kind, whatever their records contain."""
        self._answers: dict[tuple[Key, int, int, int], Answer] = {}

    def answered(
        self, key: Key, broker_id: int, broker_epoch: int, leader_epoch: int, answer: Answer
    ) -> None:
        """Record the answer that a broker gives in this broker epoch."""
        self._answers[key, broker_id, broker_epoch, leader_epoch] = answer

    def judge(self, one: Election) -> None:
        """Judge one election. Raises: Violation if a law is broken."""
        old, new = one.old, one.new
        # The last replica to catch up joins the ISR, ends the reassignment and may lead, all in one
        # record; its log is judged as it joins (P13). A record that begins a reassignment of a
        # leaderless partition may elect any replica that is only being added or removed (seeds 818,
        # 904 and 1031).
        ends = set(new.replicas) != set(old.replicas) and not (*new.adding, *new.removing)
        moved = ends and new.leader in new.isr
        if one.begins_anew:
            self.committed[ElectedAs.UNCLEAN] += 1
            self._unclean(one)
        elif new.leader in old.isr or moved:
            self.committed[ElectedAs.ISR] += 1
            self._clean(one, (ElectedAs.ISR, ElectedAs.PREFERRED))
        elif new.leader in one.elr:
            self.committed[ElectedAs.ELR] += 1
            require(one.alone, f"P22: {one.where}: elected from the ELR of {old}: {new}")
            self._clean(one, (ElectedAs.ELR,))
        else:
            self.committed[ElectedAs.UNCLEAN] += 1
            self._unclean(one)

    def _clean(self, one: Election, kinds: Collection[ElectedAs]) -> None:
        same = one.new.recovery_state in (one.old.recovery_state, LeaderRecoveryState.RECOVERED)
        require(
            same and one.kind in kinds,
            f"P22: {one.where}: {one.new.leader} is elected cleanly, the record has "
            f"{one.kind.name}, {one.new}",
        )

    def _unclean(self, one: Election) -> None:
        old, new, kind = one.old, one.new, one.kind
        require(
            kind in LOSSY_ELECTIONS,
            f"P21: {one.where}: {new.leader} is elected as {kind.name} and was in neither ISR "
            f"{old.isr} nor ELR {one.elr}",
        )
        recovers = new.recovery_state == LeaderRecoveryState.RECOVERING
        require(
            one.alone and recovers and not new.elr,
            f"P21: {one.where}: {new.leader} may lack records: {new} after {old}",
        )
        require(not one.fenced(new.leader), f"P21: {one.where}: {new.leader} leads and is fenced")
        asked = (one.topic, one.key[1]) in self.asked
        strategy = self._truth.strategy(one.image, one.topic)
        require(
            asked or strategy != NOBODY,
            f"P21: {one.where}: {kind.name} of {new.leader}, by the strategy {strategy}",
        )
        if kind is ElectedAs.UNCLEAN_RECOVERY:
            self._longest(one, strategy)
        elif kind is ElectedAs.LAST_KNOWN_LEADER:
            nobody_else = not set(old.isr) - {new.leader}
            require(
                nobody_else and old.last_known_elr == (new.leader,),
                f"P21: {one.where}: the last known leader of {old} is elected: {new}",
            )
            manager = self._truth.managed(one.image)
            require(not manager, f"P21: {one.where}: the manager is on, and compares no logs")
        else:
            lost = asked or one.topic in self._given_up
            require(lost, f"P2: {one.where}: {new.leader} is elected as {kind.name} after {old}")

    # --- the longest log ----------------------------------------------------------------------

    def _longest(self, one: Election, strategy: str) -> None:
        won = self._answer(one, one.new.leader)
        require(
            won is not None,
            f"P21: {one.where}: {one.new.leader} is elected for its log, and has not said in this "
            f"life what it has at epoch {one.old.leader_epoch}",
        )
        assert won is not None
        by_operator = getattr(one.record, "election_cause", "") == BY_OPERATOR
        if strategy == AGGRESSIVE or by_operator:
            if by_operator or self._has_waited(one):
                return
            alive = [b for b in one.old.replicas if not one.fenced(b)]
            self._nobody_has_more(one, won, alive, may_be_silent=True)
            return
        require(
            not one.old.isr and not one.old.elr,
            f"P21: {one.where}: {one.new.leader} is elected for its log, clean candidates are "
            f"{one.old}",
        )
        self._nobody_has_more(one, won, self._may_have_everything(one), may_be_silent=False)

    def _has_waited(self, one: Election) -> bool:
        """Return whether the silent replicas had the timeout for their answers. The controller
        counts from its decision, whose commit may take longer than the election. So its own clock
        counts, too, in whole milliseconds."""
        mine = self._truth.of[one.key]
        timeout_ms = self._truth.timeout_ms(one.image)
        return (
            mine.leaderless_s is None
            or (one.now_s - mine.leaderless_s) * 1000 >= timeout_ms
            or one.written_ms - mine.leaderless_ms >= timeout_ms - 1
        )

    def _may_have_everything(self, one: Election) -> tuple[int, ...]:
        known = {*one.old.isr, *one.old.elr, *one.old.last_known_elr}
        least = least_isr(one.image, one.topic, one.old)
        return one.old.last_known_elr if len(known) >= least else one.old.replicas

    def _nobody_has_more(
        self, one: Election, won: Answer, others: Iterable[int], *, may_be_silent: bool
    ) -> None:
        for other in others:
            reported = self._answer(one, other)
            if reported is None and may_be_silent:
                continue  # its directory may be gone
            require(
                reported is not None and not one.fenced(other),
                f"P21: {one.where}: {one.new.leader} is elected for its log; {other} may have "
                f"everything, and has not said what it has",
            )
            require(
                reported is None or reported <= won,
                f"P21: {one.where}: {one.new.leader} is elected with {won}, {other} has {reported}",
            )

    def _answer(self, one: Election, broker_id: int) -> Answer | None:
        return self.answer_of(one.image, one.key, broker_id, one.old.leader_epoch)

    def answer_of(
        self, image: MetadataImage, key: Key, broker_id: int, leader_epoch: int
    ) -> Answer | None:
        """Return the answer of the broker in its registered incarnation at that epoch, None without
        one."""
        broker = image.cluster.brokers.get(broker_id)
        epoch = -1 if broker is None else broker.epoch
        return self._answers.get((key, broker_id, epoch, leader_epoch))
