"""Shell: The cluster at an earlier offset or time.

It needs no Spark. It reads from the snapshot before that position on, with the product's own replay
table, so the result is the view of the cluster's nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from audit.decoding.batches import Batch, split
from audit.inputs.metadata_log import MetadataLog, Snapshot
from audit.planning.copies import choose_primary
from audit.reading.logs import UnreadableInput, find_logs
from audit.reading.segments import floor_position, log_end, walk
from audit.report.text import moment
from metalog.image.replay import Replayer, ReplayError
from metalog.image.values import MetadataImage
from protocol.errors import ApiError, ProtocolError
from protocol.ids import uuid_to_text
from protocol.metadata import decode_record

TIMESTAMP_MIN = 10**11
"""Numbers from here on are epoch milliseconds (1973 and later), smaller ones are offsets."""


class BadMoment(Exception):
    """The text is neither an offset nor a time, or is not in the log."""


def parse_moment(text: str) -> tuple[int | None, int | None]:
    """Parse `1234`, `1795274821505` or ISO 8601 (UTC by default). Raises BadMoment.

    Returns: (offset, None) or (None, epoch ms).
    """
    if text.isdigit():
        number = int(text)
        return (None, number) if number >= TIMESTAMP_MIN else (number, None)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise BadMoment(
            f"{text!r} is neither an offset nor epoch milliseconds nor ISO 8601 such as "
            "2026-05-01T12:00:00"
        ) from None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return None, round(when.timestamp() * 1000)


def cluster_at(paths: Iterable[Path], text: str) -> dict[str, Any]:
    """Return topics, partitions and brokers after the last batch at or before the moment.

    Raises BadMoment, UnreadableInput.
    """
    offset, timestamp_ms = parse_moment(text)
    logs = find_logs(paths)
    ends = {log.name: log_end(log) for log in logs}
    primary = choose_primary(logs, ends)
    end_offset = ends[primary.name].end_offset
    if offset is not None and offset >= end_offset:
        raise BadMoment(f"offset {offset} is not in {primary.path}, which ends at {end_offset - 1}")
    try:
        image = image_at(primary, offset, timestamp_ms)
    except (ReplayError, ProtocolError, ApiError) as error:
        raise UnreadableInput(f"{primary.path} does not replay up to {text}: {error}") from None
    if timestamp_ms is not None and image.provenance.offset < 0:
        raise BadMoment(f"{text} is before the first record of {primary.path}")
    return image_as_json(image)


def image_at(log: MetadataLog, offset: int | None, timestamp_ms: int | None) -> MetadataImage:
    """Return the image of the log up to and including `offset`, or up to `timestamp_ms`.

    Raises BadMoment.
    """
    base: Snapshot | None = None
    for snapshot in log.snapshots:
        if _is_before(snapshot, offset, timestamp_ms):
            base = snapshot
    replayer = Replayer()
    start = 0
    if base is not None:
        start = base.end_offset
        _replay_file(replayer, base.path, None, None)
        replayer = Replayer(replayer.image)
    elif log.start_offset > 0:
        raise BadMoment(f"the log begins at offset {log.start_offset}, without a snapshot before")
    for segment in log.segments:
        position = floor_position(segment, start)
        if not _replay_file(replayer, segment.path, offset, timestamp_ms, start, position):
            break
    return replayer.image


def _is_before(snapshot: Snapshot, offset: int | None, timestamp_ms: int | None) -> bool:
    if offset is not None:
        return snapshot.end_offset <= offset + 1
    return timestamp_ms is not None and _contained_ms(snapshot) <= timestamp_ms


def _contained_ms(snapshot: Snapshot) -> int:
    first = next(walk(snapshot.path), None)
    return first.header.max_timestamp if isinstance(first, Batch) else 2**63


def _replay_file(
    replayer: Replayer,
    path: str,
    offset: int | None,
    timestamp_ms: int | None,
    start: int = 0,
    position: int = 0,
) -> bool:
    """Replay the batches of a file; return False once the moment is passed."""
    for found in walk(path, position):
        if not isinstance(found, Batch) or not found.crc_ok:
            raise ProtocolError(f"damage at position {found.position} of {path}")
        header = found.header
        if header.base_offset < start:
            continue
        if offset is not None and header.base_offset > offset:
            return False
        if timestamp_ms is not None and header.max_timestamp > timestamp_ms:
            return False
        if not header.is_control:
            replayer.apply_batch(
                [decode_record(row[3] or b"")[0] for row in split(found)],
                base_offset=header.base_offset,
                epoch=header.leader_epoch,
                timestamp_ms=header.max_timestamp,
            )
    return True


def image_as_json(image: MetadataImage) -> dict[str, Any]:
    """Return the parts of an image that are relevant for an operator."""
    place = image.provenance
    return {
        "offset": place.offset,
        "epoch": place.epoch,
        "timestamp_ms": place.timestamp_ms,
        "features": dict(sorted(image.features.items())),
        "brokers": [
            {
                "id": broker.id,
                "epoch": broker.epoch,
                "rack": broker.rack,
                "fenced": broker.fenced,
                "in_controlled_shutdown": broker.in_controlled_shutdown,
                "endpoints": [f"{e.name}://{e.host}:{e.port}" for e in broker.endpoints],
            }
            for _, broker in sorted(image.cluster.brokers.items())
        ],
        "topics": [
            {
                "name": name,
                "id": uuid_to_text(topic.id),
                "partitions": [
                    {
                        "partition": index,
                        "leader": p.leader,
                        "leader_epoch": p.leader_epoch,
                        "partition_epoch": p.partition_epoch,
                        "replicas": list(p.replicas),
                        "isr": list(p.isr),
                        "elr": list(p.elr),
                        "last_known_elr": list(p.last_known_elr),
                        "adding": list(p.adding),
                        "removing": list(p.removing),
                        "recovering": bool(p.recovery_state),
                    }
                    for index, p in sorted(topic.partitions.items())
                ],
            }
            for name, topic in sorted(image.topics.by_name.items())
        ],
    }


def cluster_lines(cluster: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of `image_as_json` for a terminal."""
    yield (
        f"offset {cluster['offset']}, epoch {cluster['epoch']}, "
        f"{moment(cluster['timestamp_ms'])} UTC"
    )
    for broker in cluster["brokers"]:
        state = "fenced" if broker["fenced"] else "up"
        state = "shutting down" if broker["in_controlled_shutdown"] else state
        rack = f" rack {broker['rack']}" if broker["rack"] else ""
        yield f"broker {broker['id']} {state}, epoch {broker['epoch']}{rack}"
    for topic in cluster["topics"]:
        yield f"topic {topic['name']} ({topic['id']})"
        for p in topic["partitions"]:
            more = "".join(
                f" {name} {p[name]}"
                for name in ("elr", "last_known_elr", "adding", "removing")
                if p[name]
            )
            yield (
                f"  {p['partition']}: leader {p['leader']} epoch {p['leader_epoch']} replicas "
                f"{p['replicas']} isr {p['isr']}{more}{' RECOVERING' if p['recovering'] else ''}"
            )
