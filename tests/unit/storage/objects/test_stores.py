"""One suite for every object store: in memory, files, and servers of S3 and Azure."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from storage.files import MemoryFiles
from storage.objects import (
    FileRange,
    ObjectCorrupt,
    ObjectNotFound,
    ObjectRefused,
    ObjectRetriable,
    Objects,
    StoreSettings,
    open_objects,
)
from storage.objects.port import listed
from testkit.processes import object_servers
from testkit.processes.object_servers import PART_BYTES as PART


def file_of(content: bytes) -> FileRange:
    """Return a range of a file that holds `content` between other bytes."""
    files = MemoryFiles()
    file = files.open("/f", create=True)
    file.append(b"before" + content + b"after")
    return FileRange(files, file, len(b"before"), len(content))


def pattern(size_bytes: int) -> bytes:
    return (bytes(range(251)) * (size_bytes // 251 + 1))[:size_bytes]


async def test_bytes_and_ranges_of_files_come_back(objects: Objects) -> None:
    await objects.put("t/0/a", b"small")
    await objects.put("t/0/b", file_of(b"of a file"))
    assert await objects.get("t/0/a", 0, 5) == b"small"
    assert await objects.get("t/0/b", 3, 4) == b"a fi"
    assert (await objects.head("t/0/b")).size_bytes == 9


@pytest.mark.slow
async def test_a_large_file_goes_in_parts(objects: Objects) -> None:
    content = pattern(2 * PART + 1000)
    await objects.put("large", file_of(content))
    assert (await objects.head("large")).size_bytes == len(content)
    assert await objects.get("large", PART - 5, 10) == content[PART - 5 : PART + 5]
    assert await objects.get("large", 2 * PART, 1000) == content[-1000:]


async def test_an_empty_object_is_one(objects: Objects) -> None:
    await objects.put("empty", b"")
    assert (await objects.head("empty")).size_bytes == 0


async def test_missing_object_raises_not_found_and_is_deleted_without_error(
    objects: Objects,
) -> None:
    with pytest.raises(ObjectNotFound):
        await objects.get("none", 0, 1)
    with pytest.raises(ObjectNotFound):
        await objects.head("none")
    await objects.delete(["none", "neither"])


@pytest.mark.parametrize(("start", "size_bytes"), [(3, 5), (5, 1), (100, 1), (0, 6)])
async def test_get_beyond_the_end_of_an_object_raises_corrupt(
    objects: Objects, start: int, size_bytes: int
) -> None:
    await objects.put("short", b"12345")
    with pytest.raises(ObjectCorrupt):
        await objects.get("short", start, size_bytes)


async def test_lists_are_of_whole_folders(objects: Objects) -> None:
    for key in ("t/0/a", "t/0/b", "t/01/a", "u/0/a"):
        await objects.put(key, key.encode())
    found = await listed(objects, "t/0")
    assert sorted((info.key, info.size_bytes) for info in found) == [("t/0/a", 5), ("t/0/b", 5)]
    assert len(await listed(objects, "")) == 4
    assert await listed(objects, "none") == []
    assert all(info.modified_ms >= 0 for info in found)


async def test_deleted_objects_are_gone_and_the_others_are_not(objects: Objects) -> None:
    for key in ("d/a", "d/b", "d/c"):
        await objects.put(key, b"x")
    await objects.delete(["d/a", "d/none", "d/c"])
    assert [info.key for info in await listed(objects, "d")] == ["d/b"]


@pytest.mark.slow
async def test_a_file_that_ends_too_soon_leaves_nothing(objects: Objects) -> None:
    whole = file_of(pattern(PART + 100))
    with pytest.raises(OSError, match="ends at"):
        await objects.put("torn", whole._replace(size_bytes=2 * PART))
    assert await listed(objects, "") == []


@pytest.mark.parametrize("options", ["moto"], indirect=True)
@pytest.mark.slow
async def test_a_failed_or_cancelled_upload_is_aborted(
    options: dict[str, str], objects: Objects
) -> None:
    """S3 charges for the parts of an unfinished upload until it is removed."""
    boto3 = pytest.importorskip("boto3", reason="moto is not here (docs/gaps.md)")
    client = boto3.client(
        "s3",
        endpoint_url=options["endpoint"],
        aws_access_key_id="k",
        aws_secret_access_key="s",
        region_name="us-east-1",
    )

    def left() -> list[object]:
        uploads = client.list_multipart_uploads(Bucket=object_servers.BUCKET)
        found: list[object] = uploads.get("Uploads", [])
        return found

    with pytest.raises(OSError, match="ends at"):
        await objects.put("torn", file_of(pattern(2 * PART))._replace(size_bytes=3 * PART))
    assert left() == []

    class HeldFiles(MemoryFiles):
        async def pread(self, file: object, size_bytes: int, position: int) -> bytes:  # type: ignore[override]
            if position >= PART:
                reading.set()
                await released.wait()
            return bytes(size_bytes)

    reading, released = asyncio.Event(), asyncio.Event()
    files = HeldFiles()
    source = FileRange(files, files.open("/f", create=True), 0, 3 * PART)
    upload = asyncio.ensure_future(objects.put("held", source))
    await reading.wait()
    upload.cancel()
    with pytest.raises(asyncio.CancelledError):
        await upload
    released.set()
    await objects.close()
    assert left() == []
    assert await listed(objects, "") == []


@pytest.mark.parametrize("options", ["moto", "versitygw", "azurite"], indirect=True)
@pytest.mark.rest
async def test_put_into_a_missing_bucket_is_refused(options: dict[str, str]) -> None:
    url = options["url"].replace(object_servers.BUCKET, "another-bucket")
    objects = open_objects(StoreSettings.of({**options, "url": url}))
    with pytest.raises(ObjectRefused):
        await objects.put("a", b"x")


@pytest.mark.parametrize("options", ["versitygw", "azurite"], indirect=True)
@pytest.mark.rest
async def test_a_wrong_key_is_refused(options: dict[str, str]) -> None:
    secret = "account.key" if "account.key" in options else "secret.access.key"
    given = {**options, secret: options[secret].replace("t", "u")}
    objects = open_objects(StoreSettings.of(given))
    for call in (objects.put("a", b"x"), objects.get("a", 0, 1), objects.delete(["a", "b"])):
        with pytest.raises(ObjectRefused):
            await call


ANSWERS = {
    "503": (b"503 Slow Down", b"", ObjectRetriable),
    "500": (b"500 Internal Server Error", b"", ObjectRetriable),
    "429": (b"429 Too Many Requests", b"", ObjectRetriable),
    "403": (b"403 Forbidden", b"", ObjectRefused),
    "400": (b"400 Bad Request", b"", ObjectRefused),
    "404": (b"404 Not Found", b"", ObjectNotFound),
    "cut": (b"206 Partial Content", b"12", ObjectRetriable),
    "silence": (None, b"", ObjectRetriable),
}


@pytest.mark.parametrize("case", ANSWERS)
async def test_answers_of_a_failing_server(case: str) -> None:
    status, body, expected = ANSWERS[case]
    length = b"Content-Length: %d\r\nContent-Range: bytes 0-4/5\r\nETag: x\r\n" % (5 if body else 0)
    modified = b"Last-Modified: Sun, 22 Nov 2026 00:00:00 GMT\r\n"
    answer = b"HTTP/1.1 %b\r\n" % status + length + modified + b"\r\n" + body if status else None
    with pytest.raises(expected):
        await ask_who_answers(answer, "a")


async def test_refused_object_error_contains_the_servers_code_despite_a_long_key() -> None:
    """An operator finds a wrong key by the server's own error code."""
    said = b"<Error><Code>SignatureDoesNotMatch</Code><Message>wrong</Message></Error>"
    answer = b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\n\r\n" % len(said) + said
    with pytest.raises(ObjectRefused, match="403 Forbidden.*SignatureDoesNotMatch"):
        await ask_who_answers(answer, "k" * 200)


async def ask_who_answers(answer: bytes | None, key: str) -> None:
    """Get an object from a server that sends this answer to every request, or none."""
    pytest.importorskip("obstore", reason="obstore is not here (docs/gaps.md)")
    handlers = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.add(asyncio.current_task())
        await reader.readuntil(b"\r\n\r\n")
        if answer is not None:
            writer.write(answer)
            await writer.drain()
        else:
            await reader.read()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    given = {**object_servers.s3_options(f"http://127.0.0.1:{port}"), "retries": "0"}
    objects = open_objects(StoreSettings.of({**given, "timeout.ms": "300"}))
    try:
        await objects.get(key, 0, 5)
    finally:
        server.close()
        await asyncio.wait(handlers)


async def test_put_to_a_closed_port_raises_retriable() -> None:
    pytest.importorskip("obstore", reason="obstore is not here (docs/gaps.md)")
    given = {**object_servers.s3_options("http://127.0.0.1:1"), "retries": "0"}
    objects = open_objects(StoreSettings.of(given))
    with pytest.raises(ObjectRetriable):
        await objects.put("a", b"x")


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own")
async def test_the_librarys_threads_leave_the_processor_to_the_loop() -> None:
    pytest.importorskip("obstore", reason="obstore is not here (docs/gaps.md)")
    given = {**object_servers.s3_options("http://127.0.0.1:1"), "retries": "0"}
    objects = open_objects(StoreSettings.of(given))
    with pytest.raises(ObjectRetriable):
        await objects.head("a")
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert {priority - own for priority in priorities_of("tokio")} == {2}


def priorities_of(name: str) -> list[int]:
    """Return the priorities of this process's threads whose names begin with a prefix."""
    return [
        os.getpriority(os.PRIO_PROCESS, int(task.name))
        for task in Path("/proc/self/task").iterdir()
        if (task / "comm").read_text().startswith(name)
    ]
