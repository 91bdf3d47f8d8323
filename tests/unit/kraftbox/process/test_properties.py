"""Settings files: readable by their owner only, written completely or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftbox.process import properties
from kraftbox.process.properties import write_private


@pytest.fixture(autouse=True)
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.parametrize("before", [None, 0o644])
def test_private_file_is_for_its_owner_also_where_it_was_for_all(
    tmp_path: Path, before: int | None
) -> None:
    path = tmp_path / "a.properties"
    if before is not None:
        path.write_text("old")
        path.chmod(before)
    write_private(path, "new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (path.read_text(), os.listdir(tmp_path)) == ("new", ["a.properties"])


def test_private_file_does_not_follow_a_link_under_its_temporary_name(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    path = tmp_path / "a.properties"
    path.with_name(f".{path.name}.{os.getpid()}.tmp").symlink_to(victim)
    write_private(path, "new")
    assert (victim.read_text(), path.read_text()) == ("mine", "new")


def test_private_file_stays_as_it_was_when_the_write_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.properties"
    write_private(path, "old")

    def refuse(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(properties.Path, "replace", refuse)
    with pytest.raises(OSError, match="disk full"):
        write_private(path, "new")
    assert (path.read_text(), os.listdir(tmp_path)) == ("old", ["a.properties"])
