"""Findings of `kraftbox doctor`."""

from __future__ import annotations

import json
import resource
import socket
from pathlib import Path

import pytest

from kraftbox.cli import doctor
from kraftbox.cli.doctor import Verdict
from kraftbox.cli.main import main
from kraftbox.launcher.place import ClusterPlace, port_is_free
from testkit.processes.ports import free_port


def verdicts(found: list[doctor.Found]) -> dict[str, Verdict]:
    return {one.what: one.verdict for one in found}


def test_a_new_directory_can_be_started(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    assert main(["doctor", "--dir", str(tmp_path / "a/b"), "--port", str(port), "--json"]) == 0
    found = {one["what"]: one for one in json.loads(capsys.readouterr().out)}
    assert found["directory"]["text"] == f"{tmp_path / 'a/b'}: new"
    assert found["ports"] == {
        "what": "ports",
        "verdict": "ok",
        "text": f"{port} free",
    }
    assert found["packages"]["verdict"] == "ok"
    assert not (tmp_path / "a").exists()


def test_a_port_that_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert not port_is_free(port)
        assert main(["doctor", "--dir", str(tmp_path), "--port", str(port)]) == 1
    assert f"in use: {port} (choose another with up --port" in capsys.readouterr().out


def test_a_directory_of_a_later_release(tmp_path: Path) -> None:
    (tmp_path / "cluster.properties").write_text("layout.version=99\n")
    (found,) = doctor.place(ClusterPlace(tmp_path), 9092)
    assert found.verdict is Verdict.BAD and "layout.version=99" in found.text


def test_a_file_in_the_place_of_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (found,) = doctor.place(ClusterPlace(tmp_path / "file/below"), 9092)
    assert found == ("directory", Verdict.BAD, f"{tmp_path / 'file'} is not writable")


def test_few_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    for hard, verdict in ((1_024, Verdict.WARN), (resource.RLIM_INFINITY, Verdict.OK)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, hard=hard: (hard, hard))
        assert verdicts(list(doctor.limits())) == {"open files": verdict}


def test_a_package_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = ["no-such-package>=1", "typer>=0.1", "pyspark; extra == 'audit'"]
    monkeypatch.setattr(doctor.metadata, "requires", lambda _: needed)
    found = {one.what: one for one in doctor.versions()}
    assert found["packages"] == ("packages", Verdict.BAD, "missing: no-such-package")
