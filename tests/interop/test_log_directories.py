"""Log directories: Apache Kafka reads ours, and we read, continue and hand back its own."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from protocol.batch.header import iter_batches
from protocol.batch.records import Producer as ProducerFields
from protocol.batch.records import Record, build_batch, read_records
from protocol.compression import Codec
from runtime.clock import SystemClock
from storage.files import RealFiles
from storage.log.config import LogConfig
from storage.log.directory import check_meta
from storage.log.log import Log
from storage.log.manager import LogManager
from testkit.kafka.jars import kafka_libs
from testkit.kafka.nodes import ApacheKafkaNode, run_kafka_tool
from testkit.memory.logs import record_from
from testkit.processes.ports import free_ports

pytestmark = pytest.mark.interop

CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
T0 = time.time_ns() // 1_000_000 - 60_000  # recent: Kafka forgets producers after a day
DUMP = "org.apache.kafka.tools.DumpLogSegments"
CONFIG = LogConfig(segment_bytes=1 << 20)


@pytest.fixture(autouse=True)
def _need_kafka() -> None:
    if kafka_libs() is None:
        pytest.skip("no Java or Maven to get Kafka's jars with (docs/gaps.md)")


def dump(directory: Path, *suffixes: str) -> str:
    """Return the output of Kafka's tool for the files with these suffixes."""
    paths = sorted(str(path) for path in directory.iterdir() if path.suffix in suffixes)
    done = run_kafka_tool(DUMP, "--print-data-log", "--files", ",".join(paths))
    assert done.returncode == 0, done.stderr
    return done.stdout


def assert_consistent(directory: Path) -> None:
    """Let Kafka's tool check every index entry against its segment."""
    for suffix in (".index", ".timeindex"):
        output = dump(directory, suffix)
        assert not re.search("[Mm]ismatch|not found|out of order", output), output


def ours(directory: Path, **config: Any) -> Log:
    return Log.open(RealFiles(), str(directory), LogConfig(**config), SystemClock())


def test_kafkas_tool_reads_our_segments_indexes_and_snapshots(tmp_path: Path) -> None:
    directory = tmp_path / "topic-0"
    log = ours(directory, segment_bytes=20_000, index_interval_bytes=500)
    rng = random.Random(7)
    expected, sequences = [], {5: 0, 6: 0}
    for at in range(150):
        records = [
            Record(timestamp=T0 + at * 10 + rng.randint(-20, 20), key=b"k%d" % at, value=b"v" * 90)
            for _ in range(rng.randint(1, 6))
        ]
        producer = ProducerFields()
        if at % 3:
            producer = ProducerFields(5 + at % 2, 1, sequences[5 + at % 2])
            sequences[producer.id] += len(records)
        batch = build_batch(records, producer=producer, compression=rng.choice(list(Codec)))
        info = log.append_as_leader(batch, at // 40, T0)
        expected += list(range(info.first_offset, info.last_offset + 1))
    state = {one.producer_id: (one.last_sequence, one.last_offset) for one in log.producers}
    log.close()

    printed = dump(directory, ".log")
    records = re.findall(r"^\| offset: (\d+) .*keySize: \d+ .*key: (\S+)", printed, re.MULTILINE)
    assert [int(offset) for offset, _ in records] == expected
    assert set(re.findall(r"isvalid: (\S+)", printed)) == {"true"}
    assert set(re.findall(r"partitionLeaderEpoch: (\d+)", printed)) == {"0", "1", "2", "3"}
    assert_consistent(directory)
    last = max(directory.glob("*.snapshot"))
    printed = run_kafka_tool(DUMP, "--files", str(last)).stdout
    found = re.findall(
        r"producerId: (\d+) producerEpoch: 1.*lastSequence: (\d+) .*?lastOffset: (\d+)", printed
    )
    assert {int(pid): (int(seq), int(offset)) for pid, seq, offset in found} == state, printed


def test_kafkas_tool_finds_nothing_wrong_after_a_recovery(tmp_path: Path) -> None:
    directory = tmp_path / "topic-0"
    log = ours(directory, segment_bytes=20_000, index_interval_bytes=500)
    for at in range(100):
        log.append_as_leader(build_batch([Record(timestamp=T0 + at, value=b"v" * 500)]), 1, T0)
    last = log.segments.active.prefix + ".log"
    log.close(clean=False)
    content = Path(last).read_bytes()
    Path(last).write_bytes(content[:-7])
    recovered = ours(directory, segment_bytes=20_000, index_interval_bytes=500)
    assert recovered.log_end_offset == 99
    recovered.close()
    assert_consistent(directory)
    offsets = re.findall(r"^\| offset: (\d+)", dump(directory, ".log"), re.MULTILINE)
    assert [int(offset) for offset in offsets] == list(range(99))


# A running Kafka -----------------------------------------------------------------------------


class Kafka:
    """One Kafka node and the records produced to it."""

    def __init__(self, directory: Path) -> None:
        self.port, controller_port = free_ports(2)
        self.data = directory / "data"
        listeners = f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller_port}"
        self.node = ApacheKafkaNode(
            directory,
            {
                "process.roles": "broker,controller",
                "node.id": "1",
                "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
                "listeners": listeners,
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
                "controller.listener.names": "CONTROLLER",
                "log.dirs": str(self.data),
                "offsets.topic.replication.factor": "1",
                "transaction.state.log.replication.factor": "1",
                "transaction.state.log.min.isr": "1",
                "offsets.topic.num.partitions": "2",
                "transaction.state.log.num.partitions": "2",
            },
        )

    @property
    def bootstrap(self) -> dict[str, Any]:
        return {"bootstrap.servers": f"127.0.0.1:{self.port}"}

    def create_topic(self) -> None:
        topic = NewTopic("topic", 1, 1, config={"segment.bytes": str(1 << 20)})
        admin = AdminClient(self.bootstrap)
        admin.create_topics([topic])["topic"].result(30)

    def produce(self) -> list[bytes]:
        """Produce every codec, several segments, one committed and one aborted transaction.

        Returns: the values that read_committed returns.
        """
        values = []
        for at, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
            producer = Producer(
                {**self.bootstrap, "enable.idempotence": True, "compression.type": codec}
            )
            for number in range(600):
                value = random.Random(at * 1000 + number).randbytes(900)
                producer.produce("topic", value, timestamp=T0 + at * 1000 + number)
                values.append(value)
            assert producer.flush(30) == 0
        for commit in (False, True):
            producer = Producer({**self.bootstrap, "transactional.id": "t"})
            producer.init_transactions(30)
            producer.begin_transaction()
            producer.produce("topic", b"commit" if commit else b"abort", timestamp=T0 + 9000)
            assert producer.flush(30) == 0
            if commit:
                producer.commit_transaction(30)
                values.append(b"commit")
            else:
                producer.abort_transaction(30)
        return values

    def read_all(self, count: int) -> list[tuple[int, bytes]]:
        consumer = Consumer({**self.bootstrap, "group.id": "g", "enable.auto.commit": False})
        consumer.assign([TopicPartition("topic", 0, 0)])
        found: list[tuple[int, bytes]] = []
        while len(found) < count:
            messages = consumer.consume(500, timeout=20)
            assert messages, f"{len(found)} of {count} records"
            for message in messages:
                if message.error() is not None:
                    raise KafkaException(message.error())
                found.append((message.offset(), message.value()))
        consumer.close()
        return found


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[Kafka]:
    kafka = Kafka(tmp_path / "kafka")
    kafka.node.format(CLUSTER_ID, "--standalone")
    kafka.node.start()
    yield kafka
    kafka.node.stop()


def load(directory: Path) -> LogManager:
    manager = LogManager(
        RealFiles(),
        str(directory),
        clock=SystemClock(),
        rng=random.Random(1),
        config_for=lambda topic: CONFIG,
    )
    manager.load()
    return manager


def committed_values(log: Log) -> list[bytes]:
    """Return the values for read_committed: records without control batches and aborted data."""
    offset, found = log.log_start_offset, []
    aborted = log.reader.aborted_transactions(offset, log.log_end_offset)
    while offset < log.log_end_offset:
        data = log.read(offset, 1 << 20, max_offset=log.log_end_offset)
        for header, position in iter_batches(data):
            offset = header.next_offset
            gone = any(
                header.is_transactional
                and txn.producer_id == header.producer_id
                and txn.first_offset <= header.base_offset <= txn.last_offset
                for txn in aborted
            )
            if not header.is_control and not gone:
                whole = data[position : position + header.size_bytes]
                found += [record.value or b"" for record in read_records(whole)]
    return found


def test_kafka_and_we_take_turns_on_one_directory(kafka: Kafka) -> None:
    kafka.create_topic()
    values = kafka.produce()
    kafka.node.stop()

    meta = check_meta(RealFiles(), str(kafka.data), node_id=1, cluster_id=CLUSTER_ID)
    assert meta.directory_id is not None
    manager = load(kafka.data)
    assert manager.report.clean and manager.report.problems == []
    assert manager.previous_broker_epoch >= 0
    log = manager.logs[("topic", 0)]
    assert log.topic_id is not None
    assert len(log.segments) > 2
    assert committed_values(log) == values
    assert len(log.reader.aborted_transactions(0, log.log_end_offset)) == 1
    assert log.high_watermark == log.log_end_offset == log.last_stable_offset
    for at in range(5):
        found = record_from(log, T0 + at * 1000 + 17)
        assert found is not None and found.offset == at * 600 + 17
    producers = {state.producer_id: state.last_offset for state in log.producers}
    assert len(producers) == 6
    epoch, end = log.latest_epoch, log.log_end_offset

    for at in range(700):
        record = Record(timestamp=T0 + 10_000 + at, value=b"ours %d" % at + b"." * 1000)
        producer = ProducerFields(4_000_000, 0, at)
        log.append_as_leader(build_batch([record], producer=producer), epoch, T0)
        values.append(record.value or b"")
    log.update_high_watermark(log.log_end_offset)
    assert log.log_end_offset == end + 700
    assert asyncio.run(manager.close(manager.previous_broker_epoch))

    kafka.node.start()
    found = kafka.read_all(len(values))
    assert [value for _, value in found] == values
    said = kafka.node.log_text
    assert "since clean shutdown file was found" in said
    complaints = [line for line in said.splitlines() if re.search("(?i)recovering|corrupt", line)]
    # Kafka reads its metadata log in full at every start.
    assert [line for line in complaints if "__cluster_metadata-0" not in line] == []
    kafka.node.stop()
    assert_consistent(kafka.data / "topic-0")


def test_we_recover_what_a_killed_kafka_left(kafka: Kafka) -> None:
    kafka.create_topic()
    values = kafka.produce()
    process = kafka.node._process
    assert process is not None
    process.kill()
    process.wait()

    manager = load(kafka.data)
    assert not manager.report.clean
    log = manager.logs[("topic", 0)]
    assert committed_values(log) == values
    assert len(log.reader.aborted_transactions(0, log.log_end_offset)) == 1
    log.update_high_watermark(log.log_end_offset)
    assert asyncio.run(manager.close())
    assert_consistent(kafka.data / "topic-0")
