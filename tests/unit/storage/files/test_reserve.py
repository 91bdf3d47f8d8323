"""F36: a process out of file descriptors continues with the files that it has open."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from storage.files import RealFiles
from storage.files.reserve import Reserve


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    """Take every descriptor below the limit."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, before[1]))
    taken: list[int] = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for fd in taken:
            os.close(fd)


@pytest.fixture
def files() -> Iterator[RealFiles]:
    found = RealFiles()
    yield found
    found.close()


@pytest.mark.parametrize(
    "do",
    [
        lambda files, path: files.write_atomic(path, b"1"),
        lambda files, path: files.write_new(path, b"1"),
        lambda files, path: files.touch(path),
        lambda files, path: files.fsync_dir(os.path.dirname(path)),
        lambda files, path: files.read(path + ".there"),
    ],
    ids=["write_atomic", "write_new", "touch", "fsync_dir", "read"],
)
def test_short_operations_use_a_reserved_descriptor_when_none_is_free(
    files: RealFiles, tmp_path: Path, do: Callable[[RealFiles, str], None]
) -> None:
    path = tmp_path / "checkpoint"
    Path(f"{path}.there").write_bytes(b"2")
    with no_descriptors():
        with pytest.raises(OSError, match="Too many open files"):
            os.open(tmp_path, os.O_RDONLY)
        for _ in range(100):
            do(files, str(path))
        with pytest.raises(OSError, match="Too many open files"):
            os.open(tmp_path, os.O_RDONLY)


async def test_names_are_flushed_in_a_worker_as_well(files: RealFiles, tmp_path: Path) -> None:
    await files.flush_dir(str(tmp_path))  # creates threads, and the descriptors that they need
    with no_descriptors():
        await files.flush_dir(str(tmp_path))


def test_files_that_are_used_seldom_give_their_places(files: RealFiles, tmp_path: Path) -> None:
    """Less used files are closed, for example for a new segment with its log and indexes."""
    old = [files.open(f"{tmp_path}/old-{number}", create=True) for number in range(20)]
    with no_descriptors():
        new = [files.open(f"{tmp_path}/new-{number}", create=True) for number in range(20)]
        for file in (*new, *old):
            file.append(b"12")
            files.fsync(file)
            assert file.pread(2, 0) == b"12"


def test_another_error_takes_nothing_of_the_reserve(tmp_path: Path) -> None:
    reserve = Reserve(2)
    with pytest.raises(FileNotFoundError):
        reserve.open(f"{tmp_path}/none", os.O_RDONLY)
    assert len(reserve._held) == 2
    reserve.release()
    assert not reserve._held


def test_exhausted_reserve_raises_emfile_and_is_refilled_on_close(tmp_path: Path) -> None:
    reserve = Reserve(2)
    with no_descriptors():
        used = [reserve.open(str(tmp_path), os.O_RDONLY) for _ in range(2)]
        with pytest.raises(OSError) as raised:
            reserve.open(str(tmp_path), os.O_RDONLY)
        assert raised.value.errno == errno.EMFILE
        for fd in used:
            reserve.close(fd)
        assert len(reserve._held) == 2
    reserve.release()
