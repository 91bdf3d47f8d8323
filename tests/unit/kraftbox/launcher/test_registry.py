"""The register of running clusters: where links are, and which are stale."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kraftbox.launcher.early import LOCK, take
from kraftbox.launcher.registry import clusters, folders, registered


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "runtime").mkdir(mode=0o700)
    return {"XDG_RUNTIME_DIR": str(tmp_path / "runtime"), "HOME": str(tmp_path / "home")}


@contextmanager
def held(root: Path) -> Iterator[str]:
    """Create a cluster's directory and lock it, as its supervisor does."""
    root.mkdir(exist_ok=True)
    fd = take(str(root))
    assert fd is not None
    try:
        yield str(root)
    finally:
        os.close(fd)


def test_cluster_is_listed_while_its_supervisor_runs(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    with held(tmp_path / "b") as b, held(tmp_path / "a") as a:
        with registered(b, environ), registered(a, environ):
            assert clusters(environ) == [a, b]
        assert clusters(environ) == []


def test_folder_is_closed_to_other_users(tmp_path: Path, environ: dict[str, str]) -> None:
    with held(tmp_path / "a") as root, registered(root, environ):
        assert (tmp_path / "runtime" / "kraftbox").stat().st_mode & 0o777 == 0o700


def test_link_of_a_killed_supervisor_is_removed(tmp_path: Path, environ: dict[str, str]) -> None:
    """A supervisor that is killed removes nothing: its lock is free."""
    root = tmp_path / "a"
    with held(root):
        link = registered(str(root), environ)
        link.__enter__()  # and never left
    assert (root / LOCK).exists() and os.listdir(folders(environ)[0])
    assert clusters(environ) == []
    assert os.listdir(folders(environ)[0]) == []


def test_link_to_a_deleted_directory_is_removed(tmp_path: Path, environ: dict[str, str]) -> None:
    folder = Path(folders(environ)[0])
    folder.mkdir(mode=0o700)
    (folder / "1-2").symlink_to(tmp_path / "gone")
    assert clusters(environ) == []
    assert list(folder.iterdir()) == []


def test_cluster_of_a_session_without_runtime_folder_is_listed(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    """A cluster that cron started has no XDG_RUNTIME_DIR; the shell that lists it does."""
    bare = {"HOME": environ["HOME"]}
    with held(tmp_path / "a") as root, registered(root, bare):
        assert clusters(environ) == [root]


def test_folder_that_others_may_write_is_not_used(tmp_path: Path, environ: dict[str, str]) -> None:
    """Another user could name a directory of his own as the cluster."""
    runtime = Path(folders(environ)[0])
    runtime.mkdir()
    runtime.chmod(0o777)
    with held(tmp_path / "a") as root, registered(root, environ):
        assert list(runtime.iterdir()) == []
        assert clusters(environ) == [root]
        (runtime / "1-2").symlink_to(root)
    with held(tmp_path / "a"):
        assert clusters(environ) == []


def test_cluster_runs_where_no_folder_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    environ = {"HOME": str(tmp_path / "file")}
    with held(tmp_path / "a") as root, registered(root, environ):
        assert clusters(environ) == []
