"""Counters of tiered storage: completed and outstanding work (KIP-405, KIP-963)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class TopicCounters:
    """Counts of one topic on this broker since it started."""

    copy_bytes: int = 0
    copy_requests: int = 0
    copy_errors: int = 0
    delete_requests: int = 0
    delete_errors: int = 0


@dataclass(slots=True)
class BuildCounters:
    """Counts of one topic: attempts to begin a follower's log behind the tier, and their
    failures."""

    requests: int = 0
    errors: int = 0


@dataclass(slots=True)
class Backlog:
    """Outstanding work of one partition that this broker leads, as of the last pass over it."""

    copy_bytes: int = 0
    copy_segments: int = 0
    """Closed segments that no finished copy has."""
    delete_bytes: int = 0
    delete_segments: int = 0
    """Remote segments that must be deleted and still exist."""
    remote_bytes: int = 0
    """Bytes of finished copies."""
    remote_segments: int = 0
    """All segments in the metadata, in any state."""
    size_ms: float = 0.0
    """Time to compute which segments retention by time and size deletes, in milliseconds."""
    blocked: str = ""
    """Reason why the next segment cannot be copied, if no retry helps."""
