"""Counters of tiered storage: what was done and what is yet to be done (KIP-405, KIP-963)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class TopicCounters:
    """Of one topic on this broker since it started."""

    copy_bytes: int = 0
    copy_requests: int = 0
    copy_errors: int = 0
    delete_requests: int = 0
    delete_errors: int = 0


@dataclass(slots=True)
class BuildCounters:
    """Of one topic: followers' logs that were to begin behind the tier, and failures to do so."""

    requests: int = 0
    errors: int = 0


@dataclass(slots=True)
class Backlog:
    """Of one partition that this broker leads, as the last pass over it found it."""

    copy_bytes: int = 0
    copy_segments: int = 0
    """Closed segments that no finished copy has."""
    delete_bytes: int = 0
    delete_segments: int = 0
    """Remote segments that are to go and are not gone."""
    remote_bytes: int = 0
    """Of finished copies."""
    remote_segments: int = 0
    """All that the metadata know, in whatever state."""
    size_ms: float = 0.0
    """How long it took to say what is to go by time and size."""
    blocked: str = ""
    """Why the next segment is not copied, where no retry mends it."""
