"""Planted bugs of tiered storage (KIP-405)."""

from __future__ import annotations

from testkit.planting import Bug, bug

COPYING = "storage.tiered.copying:plan_copy_steps"
EXPIRY = "storage.tiered.expiry:plan_expiry"
NOTED = "broker.tiering.local_cleaning:note_copied"
COVERED = "copied_to = cache.covered_to(lineage, first, log.log_end_offset - 1)"
OFFSETS = "broker.apis.list_offsets"
FAMILY = "tier"

TIERS: tuple[Bug, ...] = (
    bug(
        "local delete before FINISHED",
        FAMILY,
        "S",
        "a local segment is deleted when its copy has only been started",
        (
            NOTED,
            COVERED,
            "copied_to = max((s.end_offset + 1 for s in cache.segments()), default=0)",
        ),
    ),
    bug(
        "copied before it is stable",
        FAMILY,
        "S2",
        "segments above the last stable offset are copied",
        (COPYING, "if segment.next_offset > last_stable_offset:", "if False:"),
    ),
    bug(
        "deleted before the log start is safe",
        FAMILY,
        "S4",
        "DELETE_STARTED does not wait until the log start is on disk",
        (
            "broker.tiering.expiring:Expirer.expire_once",
            "await self._save_log_starts()",
            "pass",
        ),
    ),
    bug(
        "highest offset for the remote end",
        FAMILY,
        "S",
        "local deletion uses the highest copied offset of any lineage",
        (NOTED, COVERED, "copied_to = max(cache._highest.values(), default=-1) + 1"),
    ),
    bug(
        "led before the metadata topic is read",
        FAMILY,
        "S6",
        "a leader starts before it has read the whole metadata topic",
        (
            "storage.tiered.metadata:_Taken._has",
            "target is not None and target <= max(self.reached, self.stream.position)",
            "True",
        ),
    ),
    bug(
        "dangling copies counted",
        FAMILY,
        "S3",
        "unfinished copies without an owner count for retention by size",
        (
            EXPIRY,
            "_by_size(shared, retention, local_only_bytes)",
            "_by_size(shared, retention, local_only_bytes + sum("
            "one.size_bytes for one in cache.unfinished()))",
        ),
    ),
    bug(
        "position beyond a lost end",
        FAMILY,
        "S|P26",
        "a journal continues from records that the metadata topic has lost",
        (
            "broker.tiering.topic_reader:TopicReader._lost_end",
            "if metadata is not self.metadata or metadata.life(number) != life:",
            "if True:",
        ),
    ),
    bug(
        "local start is the log start",
        FAMILY,
        "S8",
        "the earliest local offset is returned as the log start offset",
        (
            f"{OFFSETS}:_edge",
            "offset = log.local_log_start_offset",
            "offset = log.log_start_offset",
        ),
    ),
    bug(
        "pending from the local start",
        FAMILY,
        "S8",
        "every local record is returned as waiting for its upload",
        (
            f"{OFFSETS}:pending_upload",
            "return max(remote_end_offset + 1, log.log_start_offset)",
            "return log.local_log_start_offset",
        ),
    ),
    bug(
        "timestamps found on local disk alone",
        FAMILY,
        "S8",
        "offsets by timestamp are looked up on the local disk alone",
        (
            f"{OFFSETS}:_find_across",
            "remote = await reader.find_time(log, timestamp_ms)",
            "remote = None",
        ),
    ),
    bug(
        "segment skipped",
        FAMILY,
        "S2",
        "the oldest closed segment is not copied, later ones are",
        (COPYING, "if len(found) < most:", "if len(found) < most and place:"),
    ),
    bug(
        "copied behind one that is not eligible",
        FAMILY,
        "S2",
        "the search for segments to copy goes on behind one that waits for the copy lag (KIP-1241)",
        (COPYING, "delayed = True", "delayed = True; continue"),
    ),
    bug(
        "copied before the copy lag",
        FAMILY,
        "S2",
        "a segment is copied although fewer bytes than the copy lag follow it (KIP-1241)",
        (
            "storage.tiered.copying:CopyLag.is_reached",
            "return 0 < self.size_bytes <= following_bytes",
            "return 0 < self.size_bytes",
        ),
    ),
    bug(
        "local retention ignores the copy lag",
        FAMILY,
        "S",
        "local retention deletes closed segments that wait for the copy lag (KIP-1241)",
        (NOTED, COVERED, "copied_to = log.log_end_offset"),
    ),
)
