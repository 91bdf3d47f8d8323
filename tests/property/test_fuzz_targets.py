"""The fuzz targets under Hypothesis, which shrinks failures; and, in a soak, `fuzz.run`."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz.mutate import DAMAGE, INTERESTING, SIZE_MAX, mutate
from fuzz.target import NAMES, Target, make

ROOT = Path(__file__).resolve().parents[2]
SEED = 20_261

edits = st.lists(
    st.tuples(
        st.integers(0, SIZE_MAX), st.integers(0, 8), st.sampled_from(INTERESTING) | st.binary()
    ),
    max_size=4,
)


@pytest.fixture(scope="module", params=NAMES)
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    made = make(request.param)
    yield made
    made.close()


@cache
def seeds_of(target: Target) -> list[bytes]:
    return list(target.seeds(random.Random(SEED)))


@given(index=st.integers(0), edits=edits)
@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_damaged_input(target: Target, index: int, edits: list[tuple[int, int, bytes]]) -> None:
    seeds = seeds_of(target)
    data = bytearray(seeds[index % len(seeds)])
    for position, removed, put in edits:
        at = position % (len(data) + 1)
        data[at : at + removed] = put
    target.run(bytes(data))


@given(data=st.binary(max_size=300))
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_input(target: Target, data: bytes) -> None:
    target.run(data)


def test_damage_follows_its_seed() -> None:
    seeds = [b"", b"abc" * 50, bytes(1000)]

    def some(seed: int) -> list[bytes]:
        rng = random.Random(seed)
        return [mutate(seeds, rng) for _ in range(500)]

    assert some(1) == some(1) != some(2)
    assert max(map(len, some(3))) <= SIZE_MAX
    for damage in DAMAGE:
        data = bytearray(b"x" * 40)
        damage(data, random.Random(4))
        assert data != b"x" * 40


def run_fuzz(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fuzz.run", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=600,
        check=False,
    )


def test_short_fuzz_run_prints_summary(tmp_path: Path) -> None:
    done = run_fuzz("--minutes", "0.02", "--seed", "7", "--keep", str(tmp_path), "texts")
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("seed 7\n")
    assert "texts" in done.stdout and "memory:" in done.stdout


def test_a_finding_is_kept_and_can_be_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from fuzz import run as runner
    from fuzz.targets import texts

    def fail(_self: object, data: bytes) -> None:
        if data:
            raise ValueError("found")

    monkeypatch.setattr(texts.Texts, "run", fail)
    arguments = ["--minutes", "0.02", "--seed", "7", "--keep", str(tmp_path)]
    assert runner.main([*arguments, "texts"]) == 1
    (kept,) = tmp_path.iterdir()
    assert f"--replay {kept} texts" in capsys.readouterr().out
    assert runner.main(["--replay", str(kept), "texts"]) == 1


def test_input_that_never_ends_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from fuzz import run as runner
    from fuzz.targets import texts

    def hang(_self: object, data: bytes) -> None:
        while True:
            pass

    monkeypatch.setattr(texts.Texts, "run", hang)
    arguments = ["--minutes", "0.02", "--input-seconds", "0.2", "--keep", str(tmp_path)]
    assert runner.main([*arguments, "texts"]) == 1
    assert "TooSlow" in capsys.readouterr().out


@pytest.mark.soak
def test_a_minute_of_everything(tmp_path: Path) -> None:
    done = run_fuzz("--minutes", "1", "--keep", str(tmp_path))
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, done.stdout
