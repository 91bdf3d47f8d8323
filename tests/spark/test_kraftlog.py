"""The data source: ranges, damage, options, and a log that grows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testkit.records.metadata_logs import LogBuilder


def long_log(builder: LogBuilder, turns: int = 40) -> LogBuilder:
    for _ in range(turns):
        builder.fence(1, builder.change(isr=[2, 3], leader=2))
        builder.unfence(1)
        builder.add(builder.change(isr=[2, 3, 1]))
        builder.add(builder.change(leader=1))
    return builder


@pytest.fixture
def builder() -> LogBuilder:
    made = LogBuilder().begin()
    made.topic()
    return made


def test_byte_ranges_hold_every_record_once(
    spark: Any, builder: LogBuilder, tmp_path: Path
) -> None:
    long_log(builder, 10)
    builder.snapshot()
    long_log(builder, 10)
    log = builder.write(tmp_path)
    whole = spark.read.format("kraftlog").load(str(log))
    cut = spark.read.format("kraftlog").option("split.bytes", "900").load(str(log))
    assert whole.rdd.getNumPartitions() == 2, "one per interval"
    assert cut.rdd.getNumPartitions() > 6
    rows = sorted(whole.collect(), key=lambda r: r["offset"])
    assert [r["offset"] for r in rows] == list(range(builder.offset))
    assert sorted(cut.collect(), key=lambda r: r["offset"]) == rows


def test_raw_bytes_on_request(spark: Any, builder: LogBuilder, tmp_path: Path) -> None:
    log = builder.write(tmp_path)
    reader = spark.read.format("kraftlog").option("fields", "false")
    plain, raw = reader.load(str(log)), reader.option("raw", "true").load(str(log))
    assert plain.where("value is not null or fields is not null").count() == 0
    assert raw.where("value is null").count() == 0
    assert raw.where("control").first()["key"] == b"\0\0\0\2"


def test_unreadable_batch_is_a_row_with_an_error(
    spark: Any, builder: LogBuilder, tmp_path: Path
) -> None:
    damaged = bytearray(builder.batches[3])
    damaged[-1] ^= 1
    builder.batches[3] = bytes(damaged)
    builder.batches[-1] = builder.batches[-1][:-5]
    rows = spark.read.format("kraftlog").load(str(builder.write(tmp_path))).collect()
    wrong = [r for r in rows if r["error"]]
    assert [r["crc_ok"] for r in wrong] == [False, None]
    assert wrong[0]["offset"] == builder.base_offsets[3]
    assert wrong[1]["error"].startswith("cut")


def test_a_wrong_option_is_named(spark: Any, builder: LogBuilder, tmp_path: Path) -> None:
    log = str(builder.write(tmp_path))
    with pytest.raises(Exception, match="option raw is true or false, not 'yes'"):
        spark.read.format("kraftlog").option("raw", "yes").load(log).collect()


def test_a_stream_follows_a_growing_log(spark: Any, builder: LogBuilder, tmp_path: Path) -> None:
    """Each read continues from its checkpoint; tests/unit/audit/test_following.py has all
    variants."""
    log = builder.write(tmp_path)
    segment = log / f"{0:020d}.log"
    whole = builder.offset

    def seen() -> list[int]:
        return sorted(r["offset"] for r in spark.read.parquet(str(tmp_path / "rows")).collect())

    def catch_up() -> None:
        stream = spark.readStream.format("kraftlog").load(str(log))
        query = (
            stream.select("offset", "type")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .option("path", str(tmp_path / "rows"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    catch_up()
    long_log(builder, 3)
    data = b"".join(builder.batches)
    segment.write_bytes(data[:-10])  # the last batch is being written
    catch_up()
    assert seen() == list(range(builder.base_offsets[-1])) and len(seen()) > whole

    segment.write_bytes(data)  # now it is whole, and the log continues in a new segment
    rolled = len(builder.batches)
    second = log / f"{builder.offset:020d}.log"
    builder.snapshot()
    long_log(builder, 1)
    for name, content in builder.snapshots.items():
        (log / name).write_bytes(content)
    second.write_bytes(b"".join(builder.batches[rolled:]))
    catch_up()
    assert seen() == list(range(builder.offset))

    second.write_bytes(b"".join(builder.batches[rolled:-1]))
    with pytest.raises(Exception, match="no longer has the batch .* the log was truncated there"):
        catch_up()
    assert seen() == list(range(builder.offset)), "nothing twice"


def test_a_stream_reads_no_snapshots(spark: Any, builder: LogBuilder, tmp_path: Path) -> None:
    stream = spark.readStream.format("kraftlog").option("snapshots", "true")
    query = (
        stream.load(str(builder.write(tmp_path)))
        .writeStream.format("memory")
        .queryName("none")
        .trigger(availableNow=True)
    )
    with pytest.raises(Exception, match="option snapshots is for batch reads"):
        query.start().awaitTermination()


def test_readers_without_ranges_or_work_give_no_rows(builder: LogBuilder, tmp_path: Path) -> None:
    """Spark hands a reader InputPartition(None) where `partitions` returns an empty list."""
    from pyspark.sql.datasource import InputPartition

    from audit.spark.kraftaudit import KraftAuditReader, encode_plan
    from audit.spark.kraftlog import KraftLogReader, KraftLogStreamReader
    from audit.tasks.work import WorkOptions

    nothing: Any = InputPartition(None)
    path = str(builder.write(tmp_path))
    audit = KraftAuditReader({"plan": encode_plan([], WorkOptions())})
    assert list(audit.partitions()) == []
    for reader in (audit, KraftLogReader({"path": path}), KraftLogStreamReader({"path": path})):
        assert list(reader.read(nothing)) == []
