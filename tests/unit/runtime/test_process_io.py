from pathlib import Path

import pytest

from runtime.process_io import BROKER, CONTROLLER, collect


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="only Linux has this")
@pytest.mark.parametrize("roles", [[BROKER], [CONTROLLER], [BROKER, CONTROLLER]])
def test_process_io_has_every_count_that_kafka_reports(roles):
    """Kafka 4.4 added the last five. KafkaServer has them for brokers, ControllerServer for
    controllers."""
    families = {family.name: dict(enumerate(family.samples)) for family in collect(roles)}
    disk, process = ("read_bytes", "write_bytes"), ("rchar", "wchar", "syscr", "syscw")
    names = (*disk, *process, "cancelled_write_bytes")
    prefixes = [f"kafka_server_{role}_linux_disk_" for role in roles]
    assert set(families) == {prefix + name for prefix in prefixes for name in names}
    for prefix in prefixes:
        assert families[prefix + "rchar"][0][1] >= families[prefix + "syscr"][0][1] > 0
    assert all(samples[0][1] >= 0 for samples in families.values())
