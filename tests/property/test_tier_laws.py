"""Laws of the tier's decisions, for any history of leaders, copies, expiry and records (S1-S4, S6).

A world has one leader's log at a time, whose records are identified by (offset, epoch), the
metadata as a list of records, and the objects. Leaders are elected cleanly and uncleanly, roll
segments at different offsets, begin copies and are replaced before they end; late writes of an old
leader are written. After each step the laws hold.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.log.epochs import EpochCache
from storage.tiered.cache import SegmentCache
from storage.tiered.copying import LocalSegment, local_only_bytes, plan_copy
from storage.tiered.expiry import Retention, plan_expiry
from storage.tiered.lineage import Lineage
from storage.tiered.states import SegmentState
from storage.tiered.values import RemoteSegment, SegmentUpdate, TierRecord
from testkit.records.tier import PARTITION, segment, update


class World:
    """A partition whose segments have ten bytes a record and, as time, their offsets."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.epochs = EpochCache([(0, 0)])
        self.epoch = self.end = self.committed = self.high_watermark = self.log_start = 0
        self.bases = [0]
        self.records: list[TierRecord] = []
        self.cache = SegmentCache(PARTITION)
        self.objects: dict[bytes, dict[int, int]] = {}
        self.under_way: list[tuple[int, RemoteSegment]] = []
        self.made = 0
        self.now_ms = 0

    @property
    def lineage(self) -> Lineage:
        return Lineage(self.epochs.entries, self.end)

    @property
    def local_start(self) -> int:
        return self.bases[0]

    def local(self) -> list[LocalSegment]:
        ends = [*self.bases[1:], self.end]
        return [
            LocalSegment(base, end, (end - base) * 10)
            for base, end in zip(self.bases, ends, strict=True)
        ]

    def write(self, record: TierRecord) -> bool:
        self.records.append(record)
        return not self.cache.apply(len(self.records) - 1, record).refusal

    # Steps -----------------------------------------------------------------------------------

    def append(self) -> None:
        self.end += self.rng.randint(1, 6)
        if self.rng.random() < 0.5 and self.end > self.bases[-1]:
            self.bases.append(self.end)

    def commit(self) -> None:
        self.high_watermark += self.rng.randint(0, self.end - self.high_watermark)
        self.committed = max(self.committed, self.high_watermark)

    def elect(self) -> None:
        self._lead(self.rng.randint(self.committed, self.end))

    def elect_uncleanly(self) -> None:
        lowest = max(self.local_start, self.log_start)
        self._lead(self.rng.randint(lowest, self.end))

    def _lead(self, end: int) -> None:
        """Elect a replica with this log end.

        It has segments of its own, and may know a lower high watermark.
        """
        self.end = end
        self.committed = min(self.committed, end)
        lowest = max(self.local_start, self.log_start)
        self.high_watermark = self.rng.randint(lowest, max(lowest, self.committed))
        self.epochs.truncate_from_end(end)
        self.epoch += 1
        self.epochs.assign(self.epoch, end)
        cuts = range(self.local_start + 1, end + 1)
        chosen = self.rng.sample(cuts, min(len(cuts), self.rng.randint(0, 3)))
        self.bases = sorted({self.local_start, *chosen})
        self.under_way = [(0, one) for _, one in self.under_way]

    def begin_copy(self) -> None:
        plan = plan_copy(
            self.cache,
            self.lineage,
            self.local()[:-1],
            log_start_offset=self.log_start,
            last_stable_offset=self.high_watermark,
        )
        assert not plan.blocked
        if not plan.segments:
            return
        chosen, epochs = plan.segments[0]
        assert chosen.next_offset <= self.high_watermark, "S2"
        self.made += 1
        last = chosen.next_offset - 1
        lineage = self.lineage
        begun = segment(
            self.made,
            chosen.base_offset,
            last,
            dict(epochs),
            size_bytes=chosen.size_bytes,
            max_timestamp_ms=last,
        )
        assert self.write(begun)
        offsets = range(chosen.base_offset, chosen.next_offset)
        self.objects[begun.segment_id] = {at: lineage.epoch_at(at) for at in offsets}
        self.under_way.append((1, begun))

    def end_copy(self) -> None:
        """End a copy of this leader, or of one that does not know yet that it was replaced."""
        if self.under_way:
            _, one = self.under_way.pop(self.rng.randrange(len(self.under_way)))
            self.write(update(self.number(one), SegmentState.COPY_FINISHED))

    def give_up_copy(self) -> None:
        if self.under_way:
            self.under_way.pop()

    @staticmethod
    def number(one: RemoteSegment) -> int:
        return int.from_bytes(one.segment_id, "big")

    def expire(self) -> None:
        self.now_ms = max(self.now_ms, self.end)
        retention = self.rng.choice(
            [Retention(), Retention(ms=self.rng.randint(0, 40)), Retention(bytes=0)]
            + [Retention(bytes=self.rng.randint(1, 400), ms=self.rng.randint(0, 40))]
        )
        mine = {one.segment_id for own, one in self.under_way if own}
        lineage, local = self.lineage, self.local()
        plan = plan_expiry(
            self.cache,
            lineage,
            retention,
            now_ms=self.now_ms,
            log_start_offset=self.log_start,
            local_start_offset=local[0].base_offset if local else self.end,
            high_watermark=self.high_watermark,
            local_only_bytes=local_only_bytes(
                self.cache, lineage, local, log_start_offset=self.log_start
            ),
            being_copied=mine,
        )
        assert self.log_start <= plan.log_start_offset <= self.high_watermark, "S4"
        self.log_start = plan.log_start_offset
        ids = [one.segment.segment_id for one in plan.deletions]
        assert len(ids) == len(set(ids)), "S3"
        assert not mine & set(ids)
        for deletion in plan.deletions:
            readable = lineage.shared(deletion.segment).last
            if deletion.segment.state is SegmentState.COPY_FINISHED:
                assert readable < self.log_start, "S4: what goes is below the log start"
            assert self.write(update(self.number(deletion.segment), SegmentState.DELETE_STARTED))
            if self.rng.random() < 0.7:
                self.objects.pop(deletion.segment.segment_id)
                done = update(self.number(deletion.segment), SegmentState.DELETE_FINISHED)
                assert self.write(done)
            else:
                self.objects[deletion.segment.segment_id] = {}
        self._forget_below_log_start()

    def delete_records(self) -> None:
        self.log_start = self.rng.randint(self.log_start, self.high_watermark)
        self._forget_below_log_start()

    def _forget_below_log_start(self) -> None:
        self.epochs.truncate_from_start(self.log_start, self.end)

    def delete_local(self) -> None:
        """Remove any number of the segments that may go: retention removes no others."""
        first = max(self.local_start, self.log_start)
        copied_to = self.cache.covered_to(self.lineage, first, self.end - 1)
        may_go = [
            one
            for one in self.local()[:-1]
            if one.next_offset <= min(max(copied_to, self.log_start), self.high_watermark)
        ]
        del self.bases[: self.rng.randint(0, len(may_go))]

    # Laws ------------------------------------------------------------------------------------

    def check(self) -> None:
        lineage = self.lineage
        end = self.cache.remote_end(lineage).offset
        assert end < self.committed or end < 0, "last stable offset >= remote end"
        assert self.log_start <= self.high_watermark >= self.local_start, "S1"
        for copied, offsets in self.cache.shared_with(lineage):
            held = self.objects[copied.segment_id]
            for offset in offsets:
                assert held[offset] == lineage.epoch_at(offset), "S1: of another lineage"
        for offset in range(self.log_start, min(self.local_start, self.committed)):
            shared = self.cache.find_on(lineage, offset)
            assert shared is not None, f"S1: {offset} is neither here nor there"
            found, offsets = shared
            assert offsets.first <= offset <= offsets.last
            assert self.objects[found.segment_id][offset] == lineage.epoch_at(offset), "S1: bytes"
        if self.local_start > self.log_start:
            assert self.local_start <= end + 1, "S1: no gap at the seam"


def contents(cache: SegmentCache) -> dict[bytes, RemoteSegment]:
    return {one.segment_id: one for one in cache.segments()}


STEPS: list[Callable[[World], None]] = [
    World.append,
    World.append,
    World.commit,
    World.commit,
    World.elect,
    World.elect_uncleanly,
    World.begin_copy,
    World.begin_copy,
    World.end_copy,
    World.end_copy,
    World.give_up_copy,
    World.expire,
    World.delete_records,
    World.delete_local,
]


def story(seed: int, steps: int) -> World:
    """Return a world after `steps` steps, each followed by the laws."""
    world = World(seed)
    for _ in range(steps):
        world.rng.choice(STEPS)(world)
        world.check()
    return world


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32))
def test_the_laws_hold_after_every_step(seed: int) -> None:
    story(seed, steps=100)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.data())
def test_a_replay_from_any_point_changes_nothing(seed: int, data: st.DataObject) -> None:
    """S6: records read before are skipped, however far back the reader starts again."""
    world = story(seed, steps=40)
    cache = SegmentCache(PARTITION)
    read = 0
    while read < len(world.records):
        back = data.draw(st.integers(0, read))
        read = data.draw(st.integers(read + 1, len(world.records)))
        for offset in range(back, read):
            cache.apply(offset, world.records[offset])
    assert contents(cache) == contents(world.cache)
    for offset, record in enumerate(world.records):
        assert not cache.apply(offset, record).changed
    assert contents(cache) == contents(world.cache)


states = st.sampled_from(list(SegmentState))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), states, st.integers(0, 1)), max_size=30))
def test_refused_records_change_nothing_and_the_index_is_of_finished_copies(
    written: list[tuple[int, SegmentState, int]],
) -> None:
    """S3: any record of any writer may come; only finished copies are found by offset."""
    cache = SegmentCache(PARTITION)
    for offset, (number, state, whole) in enumerate(written):
        before = contents(cache)
        record: RemoteSegment | SegmentUpdate = update(number, state)
        if state is SegmentState.COPY_STARTED and whole:
            record = segment(number, number * 5, number * 5 + 9 + number, {0: 0})
        if cache.apply(offset, record).refusal:
            assert contents(cache) == before
        finished = list(cache.finished())
        for at in range(40):
            found = cache.find(0, at)
            holding = [one for one in finished if one.start_offset <= at <= one.end_offset]
            assert (found is not None) == bool(holding)
            assert found is None or found in holding
            if found is not None:
                assert found.end_offset == max(one.end_offset for one in holding)
