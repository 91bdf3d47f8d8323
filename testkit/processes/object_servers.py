"""Servers of object stores, each with an empty bucket, for tests of the store clients."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from email.utils import formatdate
from importlib.util import find_spec
from itertools import count
from pathlib import Path

from testkit.processes.ports import free_port
from testkit.processes.waiting import until

BUCKET = "kraftbox-test"
KEY, SECRET = "access", "secret-of-tests"
VERSITYGW_VERSION = "1.8.0"
AZURITE_VERSION = "3.35.0"
INSTALL_S = 600
PART_BYTES = 5 << 20
"""The size of one part of an upload: the smallest that S3 accepts."""
_CONTENT_TYPE = "application/octet-stream"
_AZURE_ACCOUNT = "kraftbox"
_AZURE_KEY = base64.b64encode(b"the key of an account of tests..").decode()


class ServerMissing(Exception):
    """The server is not installed; the message begins as docs/gaps.md lists it."""


def s3_options(endpoint: str) -> dict[str, str]:
    """Return the `rsm.config.*` settings of a bucket behind an endpoint, without the prefix."""
    return {
        "url": f"s3://{BUCKET}/some/where",
        "endpoint": endpoint,
        "access.key.id": KEY,
        "secret.access.key": SECRET,
    }


@contextmanager
def moto(folder: Path) -> Iterator[dict[str, str]]:
    """Run moto's emulation of S3."""
    if find_spec("moto") is None:
        raise ServerMissing("moto is not here")
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)]
    with _running(command, folder, port):
        endpoint = f"http://127.0.0.1:{port}"
        _put(f"{endpoint}/{BUCKET}", {})
        yield s3_options(endpoint)


@contextmanager
def versitygw(folder: Path) -> Iterator[dict[str, str]]:
    """Run versitygw's S3 over a folder: it checks signatures, unlike moto."""
    with versitygw_process(folder) as (options, _):
        yield options


@contextmanager
def versitygw_process(folder: Path) -> Iterator[tuple[dict[str, str], subprocess.Popen[bytes]]]:
    """Run versitygw as `versitygw` does, and yield its process, too. The buckets are in
    `folder`/buckets."""
    program = _built_by_go()
    (folder / "buckets" / BUCKET).mkdir(parents=True)
    (folder / "sidecar").mkdir()
    port = free_port()
    command = [program, "--port", f"127.0.0.1:{port}", "--access", KEY, "--secret", SECRET]
    posix = ["posix", "--sidecar", str(folder / "sidecar"), str(folder / "buckets")]
    with _running([*command, *posix], folder, port) as process:
        yield s3_options(f"http://127.0.0.1:{port}"), process


@contextmanager
def azurite(folder: Path) -> Iterator[dict[str, str]]:
    """Run azurite's emulation of Azure Blob Storage."""
    program = _installed_by_npm()
    port = free_port()
    place = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder)]
    account = {"AZURITE_ACCOUNTS": f"{_AZURE_ACCOUNT}:{_AZURE_KEY}"}
    options = ["--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    with _running([program, *place, *options], folder, port, account):
        endpoint = f"http://127.0.0.1:{port}/{_AZURE_ACCOUNT}"
        _put(f"{endpoint}/{BUCKET}?restype=container", _azure_signed(BUCKET))
        yield {
            "url": f"az://{BUCKET}/some/where",
            "endpoint": endpoint,
            "account.name": _AZURE_ACCOUNT,
            "account.key": _AZURE_KEY,
        }


def _azure_signed(container: str) -> dict[str, str]:
    """Return the headers of a request to create a container, signed with the shared key."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    named = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
    # Azurite has the account in the path as well.
    resource = f"/{_AZURE_ACCOUNT}/{_AZURE_ACCOUNT}/{container}\nrestype:container"
    # Of the eleven headers allowed here only the type is set.
    to_sign = "PUT" + "\n" * 5 + _CONTENT_TYPE + "\n" * 7 + named + resource
    digest = hmac.new(base64.b64decode(_AZURE_KEY), to_sign.encode(), hashlib.sha256).digest()
    signature = base64.b64encode(digest).decode()
    return {**headers, "Authorization": f"SharedKey {_AZURE_ACCOUNT}:{signature}"}


def _put(url: str, headers: dict[str, str]) -> None:
    headers = {**headers, "Content-Type": _CONTENT_TYPE}
    request = urllib.request.Request(url, data=b"", headers=headers, method="PUT")
    with urllib.request.urlopen(request, timeout=30):
        return


@contextmanager
def _running(
    command: list[str], folder: Path, port: int, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    with open(folder / "server.log", "wb") as log:
        server = subprocess.Popen(
            command, stdout=log, stderr=log, cwd=folder, env={**os.environ, **(environment or {})}
        )
        try:
            until(f"{command[0]} listens", lambda: _listens(port))
            yield server
        finally:
            server.terminate()
            server.wait(timeout=20)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _cache(name: str) -> Path:
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "kraftbox" / name


def _built_by_go() -> str:
    program = _cache(f"versitygw-{VERSITYGW_VERSION}") / "versitygw"
    if not program.exists():
        if shutil.which("go") is None:
            raise ServerMissing("needs go")
        package = f"github.com/versity/versitygw/cmd/versitygw@v{VERSITYGW_VERSION}"
        where = {**os.environ, "GOBIN": str(program.parent)}
        subprocess.run(["go", "install", package], check=True, env=where, timeout=INSTALL_S)
    return str(program)


def _installed_by_npm() -> str:
    folder = _cache(f"azurite-{AZURITE_VERSION}")
    program = folder / "node_modules/.bin/azurite-blob"
    if not program.exists():
        if shutil.which("npm") is None:
            raise ServerMissing("needs npm")
        folder.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--silent", "--prefix", str(folder)]
        subprocess.run([*command, f"azurite@{AZURITE_VERSION}"], check=True, timeout=INSTALL_S)
    return str(program)


SERVERS = {"moto": moto, "versitygw": versitygw, "azurite": azurite}


class Servers:
    """The servers requested by the tests of a session, each started once."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._options: dict[str, dict[str, str]] = {}
        self._tests = count()

    def options(self, name: str) -> dict[str, str]:
        """Return the settings of a store path that no other test uses. Raises: ServerMissing."""
        if name not in self._options:
            folder = self._folder / name
            folder.mkdir()
            if name == "file":
                self._options[name] = {"url": f"file://{folder}"}
            else:
                serve = SERVERS[name]
                self._options[name] = self._stack.enter_context(serve(folder))
        options = self._options[name]
        return {**options, "url": f"{options['url']}/{next(self._tests)}"}
