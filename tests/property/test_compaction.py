"""Laws of compaction, for any sequence of appends, rounds and pauses."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.batch.records import Producer
from protocol.compression import Codec
from storage.log.cleaning.cleaner import CleanerSettings
from storage.log.cleaning.key_offsets import ENTRY_BYTES
from testkit.memory.cleaning import Cleaning, KeyValue, batches_of
from testkit.memory.logs import facts

HORIZON_MS = 10_000

keys = st.sampled_from(["a", "b", "c", "d", "long" * 20])
records = st.lists(
    st.tuples(keys, st.one_of(st.none(), st.text("xyz", max_size=3))), min_size=1, max_size=4
)
appends = st.tuples(st.just("append"), records, st.sampled_from(list(Codec)), st.booleans())
pauses = st.tuples(
    st.just("pause"), st.sampled_from([1, HORIZON_MS - 1, HORIZON_MS, 3 * HORIZON_MS])
)
others = st.sampled_from([("roll",), ("clean",), ("clean",), ("restart",)])
histories = st.lists(st.one_of(appends, appends, appends, pauses, others), max_size=40)


@dataclass
class Model:
    """Written records, and the time at which a round could first have seen each tombstone."""

    written: list[tuple[int, str, str | None]] = field(default_factory=list)
    kept_since_ms: dict[int, int] = field(default_factory=dict)

    def newest(self) -> dict[str, tuple[int, str | None]]:
        return {key: (offset, value) for offset, key, value in self.written}


async def live(history: list[tuple[Any, ...]], keys_max: int) -> None:
    limits = CleanerSettings(dedupe_buffer_bytes=keys_max * ENTRY_BYTES, load_factor=1.0)
    options: dict[str, Any] = {
        "settings": limits,
        "delete_retention_ms": HORIZON_MS,
        "segment_bytes": 600,
        "index_interval_bytes": 100,
    }
    log = Cleaning(**options)
    model = Model()
    sequence = 0
    for action, *arguments in [*history, ("roll",), ("clean",)]:
        if action == "append":
            batch, codec, idempotent = arguments
            producer = Producer()
            if idempotent:
                producer = Producer(7, 0, sequence)
                sequence += len(batch)
            note(model, log.append(*batch, producer=producer, codec=codec), batch)
        elif action == "pause":
            log.clock.advance(arguments[0])
        elif action == "roll":
            log.roll()
        elif action == "restart":
            before = facts(log.log)
            await log.manager.close()
            log = Cleaning(log.files, clock=log.clock, **options)
            log.log.update_high_watermark(log.log.log_end_offset)
            assert facts(log.log) == before
        else:
            await clean_all(log, model)
        check(log, model)


def note(model: Model, first_offset: int, batch: list[KeyValue]) -> None:
    model.written += [
        (offset, key, value) for offset, (key, value) in enumerate(batch, first_offset)
    ]


async def clean_all(log: Cleaning, model: Model) -> None:
    """Run rounds until nothing is due: a small map takes several."""
    for _ in range(100):
        if not await log.clean():
            break
        # The delete retention of a tombstone begins with the round that kept it.
        for offset, _, value in log.records():
            if value is None:
                model.kept_since_ms.setdefault(offset, log.clock.now_ms())
    else:
        raise AssertionError("rounds that never end")
    clean_until = log.cleaner.checkpoints.get(("topic", 0), 0)
    assert clean_until == log.log.segments.active.base_offset or clean_until == 0
    seen: dict[str, int] = {}
    for offset, key, _ in log.records():
        if offset < clean_until:
            assert key not in seen, f"{key} at {seen[key]} and {offset}"
            seen[key] = offset


def check(log: Cleaning, model: Model) -> None:
    found = log.records()
    assert set(found) <= set(model.written), "nothing is invented or moved"
    assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})
    kept = {offset for offset, _, _ in found}
    for key, (offset, value) in model.newest().items():
        if value is not None:
            assert offset in kept, f"the newest record of {key}, at {offset}, is gone"
        elif offset not in kept:
            since_ms = model.kept_since_ms.get(offset)
            assert since_ms is not None, f"the tombstone at {offset} was never kept"
            assert log.clock.now_ms() >= since_ms + HORIZON_MS
    check_reading(log, found)


def check_reading(log: Cleaning, found: list[tuple[int, str, str | None]]) -> None:
    """Assert that a reader gets all records from any offset on."""
    for start in range(log.log.log_start_offset, log.log.log_end_offset, 3):
        offsets = [
            record.offset
            for _, records in batches_of(log.log, start)
            for record in records
            if record.offset >= start
        ]
        assert offsets == [offset for offset, _, _ in found if offset >= start]


@settings(deadline=None)
@given(histories, st.integers(1, 8))
def test_every_history_keeps_the_newest_record_of_each_key(
    history: list[tuple[Any, ...]], keys_max: int
) -> None:
    asyncio.run(live(history, keys_max))
