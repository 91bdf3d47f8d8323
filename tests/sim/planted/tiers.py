"""The planted bugs of tiered storage (KIP-405): what the judge of tiers is there for."""

from __future__ import annotations

from testkit.planting import Bug, bug

COPYING = "storage.tiered.copying:plan_copy"
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
        "a copy that was begun is enough for the disk to let go",
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
        "DELETE_STARTED does not wait for the log start to be on the disk",
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
        "the disk lets go by the highest offset ever copied, of whatever lineage",
        (NOTED, COVERED, "copied_to = max(cache._highest.values(), default=-1) + 1"),
    ),
    bug(
        "led before all is known",
        FAMILY,
        "S6",
        "a leader goes by what it has read so far of the metadata topic",
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
        "copies that nobody will finish count for retention by size",
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
        "a journal goes on by records of the metadata topic that nobody has any more",
        (
            "broker.tiering.journal:Journal._lost_end",
            "if metadata is not self._metadata or metadata.life(number) != life:",
            "if True:",
        ),
    ),
    bug(
        "local start is the log start",
        FAMILY,
        "S8",
        "who asks for the earliest local offset is told the earliest of all",
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
        "all that is on the disk is said to wait for its upload",
        (
            f"{OFFSETS}:pending_upload",
            "return max(remote_end_offset + 1, log.log_start_offset)",
            "return log.local_log_start_offset",
        ),
    ),
    bug(
        "times on the disk alone",
        FAMILY,
        "S8",
        "offsets by time are looked for on the disk alone",
        (
            f"{OFFSETS}:_find_across",
            "remote = await reader.find_time(log, timestamp_ms)",
            "remote = None",
        ),
    ),
)
