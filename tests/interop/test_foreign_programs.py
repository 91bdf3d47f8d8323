"""The interop scenario with franz-go, kafkajs, the Java client and kcat (see README.md here)."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from broker.apis.find_coordinator import NO_TRANSACTIONS
from testkit.processes.reply_cuts import FlakyNode
from tests.interop.foreign_programs import need, run

pytestmark = [pytest.mark.interop, pytest.mark.core]

CUTS = 8
SCENARIO_STEPS = 8


@pytest.fixture(params=["franz_go", "kafkajs", "java_client"])
def program(request: pytest.FixtureRequest) -> list[str]:
    return list(request.getfixturevalue(request.param))


def test_scenario(program: list[str], bootstrap: str, prefix: str) -> None:
    output = run(*program, bootstrap, prefix, "all")
    assert output.count("ok ") == SCENARIO_STEPS, output


def test_idempotent_producer_with_retries(
    program: list[str], flaky: FlakyNode, prefix: str
) -> None:
    before = flaky.cuts.made
    flaky.cuts.arm(CUTS)
    output = run(*program, flaky.address, prefix, "idempotent")
    assert "ok idempotent producer with retries" in output
    assert flaky.cuts.made > before, "no connection was cut, so nothing was tested"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        # Some show the broker's message; the others show a name or text of their own.
        ("java_client", NO_TRANSACTIONS),
        ("franz_go", "CLUSTER_AUTHORIZATION_FAILED"),
        ("kafkajs", "Failed to find group coordinator"),
    ],
)
def test_a_transactional_producer_is_refused_for_good(
    request: pytest.FixtureRequest, bootstrap: str, prefix: str, name: str, told: str
) -> None:
    program: list[str] = request.getfixturevalue(name)
    (line,) = run(*program, bootstrap, prefix, "transactional").splitlines()
    assert line.startswith("transactions refused:")
    assert told in line


def test_java_client_receives_error_for_consumer_protocol(
    java_client: list[str], bootstrap: str, prefix: str
) -> None:
    output = run(*java_client, bootstrap, prefix, "consumer-protocol")
    assert "consumer protocol refused:" in output
    assert "group.protocol=classic" in output


def test_franz_go_falls_back_to_the_classic_protocol(
    franz_go: list[str], bootstrap: str, prefix: str
) -> None:
    output = run(*franz_go, bootstrap, prefix, "consumer-protocol")
    assert output == "consumes by protocol consumer range\n"


# --- kcat -------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_kcat_every_codec(bootstrap: str, prefix: str, codec: str, tmp_path: Path) -> None:
    need("kcat")
    lines = [f"k{i}:value {i} of {codec}, and again: {i}" for i in range(200)]
    source = tmp_path / "lines"
    source.write_text("".join(f"{line}\n" for line in lines))
    run("kcat", "-b", bootstrap, "-P", "-t", prefix, "-z", codec, "-K:", "-l", source)
    read = run("kcat", "-b", bootstrap, "-C", "-t", prefix, "-o", "beginning", "-e", "-q", "-K:")
    assert sorted(read.splitlines()) == sorted(lines)


def test_kcat_group_listing_and_offsets_by_time(
    bootstrap: str, prefix: str, tmp_path: Path
) -> None:
    need("kcat")
    source = tmp_path / "lines"
    source.write_text("".join(f"{i}\n" for i in range(100)))
    run("kcat", "-b", bootstrap, "-P", "-t", prefix, "-p", "0", "-l", source)
    assert f'topic "{prefix}"' in run("kcat", "-b", bootstrap, "-L")
    group = ["kcat", "-b", bootstrap, "-G", prefix, "-X", "auto.offset.reset=earliest"]
    read = run(*group, "-e", "-q", prefix, "-c", "100")
    assert [int(line) for line in read.splitlines()] == list(range(100))
    future_ms = int(time.time() * 1000) + 3_600_000
    query = run("kcat", "-b", bootstrap, "-Q", "-t", f"{prefix}:0:{future_ms}")
    assert "offset -1" in query or "offset 100" in query
    query = run("kcat", "-b", bootstrap, "-Q", "-t", f"{prefix}:0:1")
    assert "offset 0" in query
