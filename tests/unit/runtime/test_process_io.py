from pathlib import Path

import pytest

from runtime.process_io import collect


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="only Linux has this")
def test_process_io_has_every_count_that_kafka_reports():
    """Kafka 4.4 added the last five."""
    families = {family.name: dict(enumerate(family.samples)) for family in collect()}
    prefix = "kafka_server_kafkaserver_linux_disk_"
    disk, process = ("read_bytes", "write_bytes"), ("rchar", "wchar", "syscr", "syscw")
    names = (*disk, *process, "cancelled_write_bytes")
    assert set(families) == {prefix + name for name in names}
    assert families[prefix + "rchar"][0][1] >= families[prefix + "syscr"][0][1] > 0
    assert all(samples[0][1] >= 0 for samples in families.values())
