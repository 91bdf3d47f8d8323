from pathlib import Path

import pytest

from runtime.process_io import collect


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="only Linux has this")
def test_bytes_of_disks():
    families = {family.name: dict(enumerate(family.samples)) for family in collect()}
    prefix = "kafka_server_kafkaserver_linux_disk_"
    assert set(families) == {prefix + "read_bytes", prefix + "write_bytes"}
    assert all(samples[0][1] >= 0 for samples in families.values())
