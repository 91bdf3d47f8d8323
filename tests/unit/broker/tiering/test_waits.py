"""Waits of tiered storage: each has a table of events, or a reason why it needs none.

State that a function read before an `await` may be old after it. The tables of this folder let each
event happen at each call that leaves a broker. A new wait fails here until it has a row: give it a
stopping point (`testkit.memory.tier_stops`) in one of the tables, and name that table.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[4]
HERE: Final = Path(__file__).parent

PLANS: Final = "test_old_plans.py"
BEGINNINGS: Final = "test_old_beginnings.py"
READS: Final = "test_old_reads.py"
METADATA: Final = "test_old_metadata.py"
REMOVALS: Final = "test_old_removals.py"
SURVEY: Final = "test_visible_parts.py"
TURNS: Final = "test_turns.py"
"""Callers wait for their turn alone; each table has the wait that follows."""
ENDS: Final = "test_on_a_node.py"
"""The end of a component, after which it decides nothing."""

WAITS: Final[dict[str, tuple[str, str]]] = {
    "copying.Copier.copy_once": (PLANS, "self._plan self._limit.wait self._copy"),
    "copying.Copier._plan": (PLANS, "result_in_slices"),
    "copying.Copier._copy": (PLANS, "log.flush producer_snapshot self._carry_out"),
    "copying.Copier._carry_out": (
        PLANS,
        "self._metadata.write self._store.copy self._take_back self._take_back self._finish",
    ),
    "copying.Copier._finish": (PLANS, "self._metadata.write asyncio.sleep self._take_back"),
    "copying.Copier._take_back": (PLANS, "self._store.delete"),
    "expiring.Expirer.expire_once": (PLANS, "self._save_log_starts self._delete"),
    "expiring.Expirer._delete": (
        PLANS,
        "self._metadata.write self._store.delete self._metadata.write",
    ),
    "following.TierBeginnings.begin": (BEGINNINGS, "self._known self._begun self._begin"),
    "following.TierBeginnings._begin": (
        BEGINNINGS,
        "self._copy_before self._beginning partition.log.begin_at",
    ),
    "following.TierBeginnings._copy_before": (BEGINNINGS, "self._known"),
    "following.TierBeginnings._beginning": (
        BEGINNINGS,
        "self.turns self._store.manifest asyncio.gather self._store.read_whole",
    ),
    "following.TierBeginnings._known": (BEGINNINGS, "asyncio.timeout self._ready"),
    "index_cache.IndexCache.get": (READS, "asyncio.shield"),
    "index_cache.IndexCache._bring": (
        READS,
        "self._files.run self._store.manifest self._store.read_whole",
    ),
    "journal.Journal.ready": (REMOVALS, "self.taken.moved"),
    "journal.Journal.write": (REMOVALS, "self.writer.write"),
    "journal.Journal._find_topic": (METADATA, "self._create_topic self._tasks.pause"),
    "journal.Journal.close": (ENDS, "self._tasks.close self._link.close"),
    "journal_tasks.JournalTasks.pause": (METADATA, "asyncio.timeout self._image.wait"),
    "journal_tasks.JournalTasks.close": (ENDS, "asyncio.wait"),
    "record_writer.RecordWriter.write": (REMOVALS, "asyncio.timeout asyncio.wait future"),
    "record_writer.RecordWriter._append": (REMOVALS, "self._link.append self._tasks.pause"),
    "taken_partitions.TakenPartitions.moved": (REMOVALS, "self._moved.wait"),
    "topic_reader.TopicReader._learn_end": (
        METADATA,
        "self._link.bound self._tasks.pause self._tasks.pause",
    ),
    "topic_reader.TopicReader._read_from": (
        METADATA,
        "self._link.read self.take_over self._tasks.pause self._tasks.pause self._tasks.pause",
    ),
    "topic_reader.TopicReader.take_over": (METADATA, "self._link.bound asyncio.sleep"),
    "quota.RateLimit.wait": (PLANS, "asyncio.sleep"),
    "reader.RemoteReader.find_time": (
        READS,
        "self._lookups search.highest search.first_at_or_after",
    ),
    "reader.RemoteReader._run": (READS, "self._parts.read"),
    "part_reader.PartReader.read": (READS, "self._read_in self._read_local self._aborted"),
    "part_reader.PartReader._read_in": (READS, "self._range self._store.read_log"),
    "part_reader.PartReader._range": (READS, "self._indexes.get"),
    "part_reader.PartReader._read_local": (READS, "log.read_cold self._files.run"),
    "part_reader.PartReader._aborted": (READS, "self._indexes.get"),
    "removal.Remover._remove": (REMOVALS, "self.turns self._remove_once asyncio.sleep"),
    "removal.Remover._remove_once": (
        REMOVALS,
        "self._journal.ready self._save_log_starts self._say self._remove_segment self._say",
    ),
    "removal.Remover._remove_segment": (REMOVALS, "self._step self._store.delete self._step"),
    "removal.Remover._step": (REMOVALS, "self._journal.write"),
    "removal.Remover._say": (REMOVALS, "self._journal.write"),
    "removal.Remover.close": (ENDS, "asyncio.wait"),
    "restoring.restore_producers": (READS, "store.manifest store.read_whole"),
    "restoring.restore_epochs": (READS, "store.manifest store.read_whole"),
    "roles.Roles._mark": (REMOVALS, "self._journal.ready self._journal.write asyncio.sleep"),
    "roles.Roles.close": (ENDS, "asyncio.wait"),
    "rounds.Rounds.close": (ENDS, "asyncio.wait"),
    "rounds.Rounds._work": (PLANS, "self._one_pass"),
    "sources.producer_snapshot": (PLANS, "log.files.run"),
    "tasks.TierTasks._note": (READS, "self._restore"),
    "tasks.TierTasks._restore": (READS, "restore_epochs restore_producers"),
    "tasks.TierTasks.close": (ENDS, "self.notes.close self.copies.close self.expirations.close"),
    "tier.Tier.close": (
        ENDS,
        "self.tasks.close self.roles.close self._remover.close self.journal.close "
        "self.store.objects.close",
    ),
    "time_search.TimeSearch.first_at_or_after": (READS, "self._look_into met.breathe"),
    "time_search.TimeSearch.highest": (READS, "met.breathe self._look_into"),
    "time_search.TimeSearch._look_into": (
        READS,
        "self.indexes.get self.store.read_log self.files.run",
    ),
    "time_search._Met.breathe": (READS, "asyncio.sleep"),
    "topic_link.TopicLink.append": (METADATA, "self._leading(number).request"),
    "topic_link.TopicLink.read": (METADATA, "peer.request"),
    "topic_link.TopicLink.bound": (METADATA, "self._leading(number).request"),
    "turns.Turns.__aenter__": (TURNS, "turn"),
    "segment_store.SegmentStore.copy": (PLANS, "self._put_log self._put self._put"),
    "segment_store.SegmentStore._put_log": (
        PLANS,
        "self._put_whole self.objects.put self._look_at",
    ),
    "segment_store.SegmentStore._put": (PLANS, "_sum_of self._put_whole"),
    "segment_store.SegmentStore._put_whole": (PLANS, "self.objects.put self._look_at"),
    "segment_store.SegmentStore._look_at": (PLANS, "self.objects.head"),
    "segment_store.SegmentStore.manifest": (READS, "self.objects.head whole"),
    "segment_store.SegmentStore.read_whole": (READS, "whole"),
    "segment_store.SegmentStore.read_log": (READS, "self.objects.get run"),
    "segment_store.SegmentStore.delete": (PLANS, "self.objects.delete self.objects.delete"),
    "segment_store._SummedRange.parts": (PLANS, "aclosing parts"),
    "segment_store._CheckedRange.parts": (PLANS, "aclosing parts self.files.run"),
    "segment_store._sum_of": (PLANS, "source.parts"),
    "survey.verify": (SURVEY, "listed read_manifests _contents"),
    "survey.read_manifests": (SURVEY, "whole"),
    "survey.rebuild": (SURVEY, "listed read_manifests"),
    "survey._contents": (SURVEY, "_differs"),
    "survey._differs": (SURVEY, "objects.get"),
}
"""By function: its table, and the calls that it waits for, in order."""


def waits() -> Iterator[tuple[str, str]]:
    """Yield the function of each wait, and the call."""
    for folder in ("broker/tiering", "storage/tiered"):
        for path in sorted((ROOT / folder).glob("*.py")):
            yield from waits_in(ast.parse(path.read_text()), path.stem)


def waits_in(node: ast.AST, scope: str) -> Iterator[tuple[str, str]]:
    for child in ast.iter_child_nodes(node):
        below = scope
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            below = f"{scope}.{child.name}"
        elif isinstance(child, ast.Await):
            yield scope, called(child.value)
        elif isinstance(child, ast.AsyncWith):
            for item in child.items:
                yield scope, called(item.context_expr)
        elif isinstance(child, ast.AsyncFor):
            yield scope, called(child.iter)
        yield from waits_in(child, below)


def called(value: ast.expr) -> str:
    return ast.unparse(value.func if isinstance(value, ast.Call) else value)


def test_every_wait_has_a_table_of_events() -> None:
    """S1-S10: plans that are old when they are carried out (a class of planted bugs)."""
    found: dict[str, str] = {}
    for scope, call in waits():
        found[scope] = f"{found[scope]} {call}" if scope in found else call
    assert found == {scope: calls for scope, (_, calls) in WAITS.items()}


@pytest.mark.parametrize("name", sorted({table for table, _ in WAITS.values()}))
def test_table_of_events_exists(name: str) -> None:
    text = (HERE / name).read_text()
    if name not in (TURNS, ENDS):
        assert "Stops" in text or ".stops.at(" in text
