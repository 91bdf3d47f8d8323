"""`kraftbox tier`: remote segments in the metadata topic and in the object store."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TypeVar

import typer

from broker.tiering.settings import RemoteSettings
from broker.tiering.tier import metadata_topic
from client.admin import Admin, NewTopic
from client.cluster_client import EARLIEST, LATEST, ClusterClient
from client.consumer import Consumer
from client.errors import Refused
from client.leaders import TopicPartition
from client.offsets import offsets_at, partitions_of
from kraftbox.cli import connect
from kraftbox.cli.output import (
    FAILED,
    CommandFailed,
    JsonFlag,
    command_group,
    counted,
    say,
    say_json,
    table,
)
from kraftbox.launcher.place import ClusterPlace
from kraftbox.process.properties import read_properties
from protocol.batch.records import Record, build_batch
from protocol.errors import ErrorCode
from protocol.ids import TopicId, uuid_to_text
from runtime.config import ConfigError, NodeConfig
from storage.objects import ObjectError, Objects, StoreSettings
from storage.tiered import survey
from storage.tiered.catalogue import Catalogue
from storage.tiered.layout import topic_folder
from storage.tiered.records import METADATA_TOPIC, encode_record, metadata_partition
from storage.tiered.values import RemoteSegment, SegmentUpdate, TierRecord
from storage.tiered.verify import Finding

T = TypeVar("T")

NOBODY: Final = -1
"""The broker ID in records that no broker has written."""

app = command_group("List and verify the segments in tiered storage.")

DirOption = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        metavar="FOLDER",
        help="Directory of a running local cluster. Default: KRAFTBOX_DIR, or kraftbox-data.",
    ),
]
BootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server", "-b", metavar="HOST:PORT[,...]", help="Address of a broker."
    ),
]
PropertiesOption = Annotated[
    Path | None,
    typer.Option(
        "--properties", help="server.properties of a node, with the keys of the object store."
    ),
]
TopicOption = Annotated[str | None, typer.Option("--topic", help="Limit to this topic.")]


class ClusterAddress(NamedTuple):
    """The cluster's address, and the properties of a node with the store's settings, or None."""

    bootstrap: str
    properties: Mapping[str, str] | None

    def settings(self) -> RemoteSettings:
        """Return the settings of the store. Raises BadParameter, CommandFailed."""
        if self.properties is None:
            raise typer.BadParameter(
                "--properties is missing: it must contain the keys of the object store"
            )
        try:
            return RemoteSettings.of(NodeConfig.parse(self.properties))
        except ConfigError as error:
            raise CommandFailed(str(error)) from None


def place_of(
    directory: Path | None, bootstrap: str | None, properties: Path | None
) -> ClusterAddress:
    """Return the place that the options name. Raises BadParameter, CommandFailed."""
    if directory is not None and bootstrap is not None:
        raise typer.BadParameter("give --dir, or --bootstrap-server with --properties")
    if bootstrap is not None:
        return ClusterAddress(
            bootstrap, None if properties is None else read_properties(properties)
        )
    if properties is not None:
        raise typer.BadParameter("--properties needs --bootstrap-server")
    directory = directory or Path(os.environ.get("KRAFTBOX_DIR") or connect.DIR_DEFAULT)
    brokers = []
    for log in ClusterPlace(directory).node_logs().values():
        found = log.parent / "server.properties"
        if found.exists():
            brokers.append(read_properties(found))
    brokers = [one for one in brokers if "broker" in one.get("process.roles", "")]
    if not brokers:
        raise CommandFailed(f"no cluster with a broker in {directory}")
    addresses = [
        listener.removeprefix("PLAINTEXT://")
        for one in brokers
        for listener in one["listeners"].split(",")
        if listener.startswith("PLAINTEXT://")
    ]
    return ClusterAddress(",".join(addresses), brokers[0])


@app.command("list")
def list_segments(
    directory: DirOption = None,
    bootstrap: BootstrapOption = None,
    properties: PropertiesOption = None,
    topic: TopicOption = None,
    as_json: JsonFlag = False,
) -> None:
    """List remote segments and their states in the metadata topic."""
    place = place_of(directory, bootstrap, properties)
    catalogue = connect.run(place.bootstrap, read_catalogue)
    segments = list(catalogue.segments(topic))
    if as_json:
        say_json({"segments": [_as_json(one) for one in segments], "refused": catalogue.refused})
        return
    table(
        ("PARTITION", "OFFSETS", "BYTES", "STATE", "SEGMENT"),
        [
            (
                f"{one.partition.topic}-{one.partition.partition}",
                f"{one.start_offset}..{one.end_offset}",
                one.size_bytes,
                one.state.name,
                uuid_to_text(one.segment_id),
            )
            for one in segments
        ],
    )


@app.command()
def verify(
    directory: DirOption = None,
    bootstrap: BootstrapOption = None,
    properties: PropertiesOption = None,
    topic: TopicOption = None,
    sizes_only: Annotated[
        bool, typer.Option("--sizes", help="Compare object sizes, and read only the manifests.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Compare every object with its manifest, and all manifests with the metadata topic.

    Exit code 1 if an object is wrong, dangling or missing.
    """
    place = place_of(directory, bootstrap, properties)
    settings = place.settings()

    async def work(client: ClusterClient) -> tuple[Catalogue, list[Finding]]:
        catalogue = await read_catalogue(client)
        segments = list(catalogue.segments(topic))
        folders = await _folders(client, topic, segments)
        async with _opened(settings.store) as objects:
            found = []
            for folder in folders:
                of_folder = [one for one in segments if _is_in(one, folder)]
                found += await survey.verify(objects, of_folder, folder, contents=not sizes_only)
        return catalogue, found

    catalogue, found = _with_store(place, work)
    wrong = [one for one in found if not one.harmless]
    if as_json:
        findings = [{"fault": f.fault.name, "key": f.key, "detail": f.detail} for f in found]
        states = Counter(one.state.name for one in catalogue.segments(topic))
        refused = catalogue.refused
        say_json({"segments": dict(states), "findings": findings, "refused": refused})
    else:
        for one in found:
            say(f"{one.fault.name}  {one.key}  {one.fault.value}{_detail(one)}")
        count = sum(1 for _ in catalogue.segments(topic))
        say(f"{counted(count, 'segment')}, {counted(len(wrong), 'fault')}")
    if wrong:
        raise typer.Exit(FAILED)


@app.command()
def rebuild(
    directory: DirOption = None,
    bootstrap: BootstrapOption = None,
    properties: PropertiesOption = None,
    topic: TopicOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Write the segments of manifests that the metadata topic lacks into that topic.

    Use it for a metadata topic that was lost; the topic is created if it does not exist. Segments
    in the topic, in any state, stay unchanged, and so do objects without a manifest. Deleted
    segments have no manifest, so they do not come back.
    """
    place = place_of(directory, bootstrap, properties)
    settings = place.settings()

    async def work(client: ClusterClient) -> tuple[int, int]:
        await _ensure_topic(client, settings)
        catalogue = await read_catalogue(client)
        known = {one.segment_id for one in catalogue.segments()}
        now_ms = time.time_ns() // 1_000_000
        records: list[TierRecord] = []
        async with _opened(settings.store) as objects:
            for folder in await _folders(client, topic, list(catalogue.segments(topic))):
                records += await survey.rebuild(
                    objects, broker_id=NOBODY, now_ms=now_ms, folder=folder
                )
        missing = [one for one in records if _segment_id(one) not in known]
        await _write(client, missing, now_ms)
        return len(missing) // 2, (len(records) - len(missing)) // 2

    written, known = _with_store(place, work)
    if as_json:
        say_json({"written": written, "known": known})
    else:
        say(f"wrote {written} segments; {known} were known")


async def read_catalogue(client: ClusterClient) -> Catalogue:
    """Read the metadata topic up to its current end. Raises CommandFailed."""
    catalogue = Catalogue()
    partitions = await _metadata_partitions(client)
    ends = await offsets_at(client, partitions, LATEST)
    begins = await offsets_at(client, partitions, EARLIEST)
    consumer = Consumer(client)
    consumer.assign({one: begin for one, begin in begins.items() if begin < ends[one]})
    while any(position < ends[one] for one, position in consumer.positions.items()):
        for record in await consumer.poll():
            if record.offset < ends[record.topic, record.partition]:
                where = f"{record.topic}-{record.partition}"
                catalogue.apply(where, record.offset, record.value)
    return catalogue


async def _ensure_topic(client: ClusterClient, settings: RemoteSettings) -> None:
    wish = metadata_topic(settings.metadata)
    configs = {one.name: one.value or "" for one in wish.configs}
    new = NewTopic(wish.name, wish.num_partitions, wish.replication_factor, configs)
    await Admin(client).create_topics([new], exist_ok=True)
    await client.topic(wish.name, is_new=True)


async def _metadata_partitions(client: ClusterClient) -> list[TopicPartition]:
    try:
        return await partitions_of(client, [METADATA_TOPIC])
    except Refused as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise CommandFailed(
            f"{METADATA_TOPIC} does not exist: the cluster creates it with the first tiered topic"
        ) from None


async def _write(client: ClusterClient, records: list[TierRecord], now_ms: int) -> None:
    count = len(await _metadata_partitions(client))
    for record in records:
        number = metadata_partition(_partition(record), count)
        value = Record(timestamp=now_ms, key=None, value=encode_record(record))
        await client.produce(METADATA_TOPIC, number, build_batch([value]))


def _partition(record: TierRecord) -> Any:
    assert isinstance(record, RemoteSegment | SegmentUpdate)
    return record.partition


def _segment_id(record: TierRecord) -> bytes:
    assert isinstance(record, RemoteSegment | SegmentUpdate)
    return record.segment_id


async def _folders(
    client: ClusterClient, topic: str | None, segments: list[RemoteSegment]
) -> list[str]:
    """Return the folders to read: all without a topic, else those of its ID and of deleted
    namesakes.
    """
    if topic is None:
        return [""]
    ids = {one.partition.topic_id for one in segments}
    try:
        ids.add(TopicId((await client.topic(topic)).topic_id))
    except Refused as error:
        if not ids:
            raise CommandFailed(str(error)) from None
    return [topic_folder(one) for one in sorted(ids)]


def _is_in(segment: RemoteSegment, folder: str) -> bool:
    return not folder or topic_folder(segment.partition.topic_id) == folder


@asynccontextmanager
async def _opened(settings: StoreSettings) -> AsyncIterator[Objects]:
    from storage.objects import open_objects

    try:
        objects = open_objects(settings)
    except ImportError:
        raise CommandFailed("obstore is not installed: pip install kraftbox[tiered]") from None
    try:
        yield objects
    finally:
        await objects.close()


def _with_store(place: ClusterAddress, work: Callable[[ClusterClient], Awaitable[T]]) -> T:
    try:
        return connect.run(place.bootstrap, work)
    except ObjectError as error:
        raise CommandFailed(f"object store: {error}") from None


def _as_json(segment: RemoteSegment) -> dict[str, Any]:
    return {
        "topic": segment.partition.topic,
        "topicId": uuid_to_text(segment.partition.topic_id),
        "partition": segment.partition.partition,
        "segment": uuid_to_text(segment.segment_id),
        "startOffset": segment.start_offset,
        "endOffset": segment.end_offset,
        "bytes": segment.size_bytes,
        "state": segment.state.name,
        "maxTimestampMs": segment.max_timestamp_ms,
        "broker": segment.broker_id,
        "leaderEpochs": {str(one.epoch): one.start_offset for one in segment.epochs},
    }


def _detail(finding: Finding) -> str:
    return f" ({finding.detail})" if finding.detail else ""
