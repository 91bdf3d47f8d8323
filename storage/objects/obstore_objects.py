"""Shell: Object stores of real nodes, through the library obstore.

obstore is imported at first use: its threads must not exist when nodes are forked, and its futures
need a real event loop. No other module imports it.

This module adds three things to obstore. A cancelled put goes on in the background with its source
ended by an error, because only a failing put aborts its multipart upload. A file is flushed, with
its folders, before the put returns. A process that is killed during an upload leaves parts that the
bucket's own lifecycle rule must remove.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

from protocol.schema import Buffer
from storage.objects.port import (
    FileRange,
    ObjectCorrupt,
    ObjectError,
    ObjectInfo,
    ObjectNotFound,
    ObjectRefused,
    ObjectRetriable,
    Source,
)
from storage.objects.settings import StoreSettings

_STATUS = re.compile(r"status code: (\d{3})")
_NO_SUCH_RANGE = re.compile(r"Requested range was invalid|Wanted range starting at")
_TRY_AGAIN: Final = frozenset({408, 425, 429})
_RANGE_NOT_SATISFIABLE: Final = 416
_PLACES = re.compile(r" for path \S+(?=:)|(?<=Error performing )\w+ \S+ in \S+(?= - )")
"""Location part of an error message: the caller knows the key, and the server's text follows."""
_WHY_CHARS: Final = 300
_DELETED_TOGETHER: Final = 500
_NICE: Final = 2
"""Added to the nice value of the library's threads, so that producers wait less for a CPU that
copies use. With 5, copies take longer."""


class _Abandoned(Exception):
    """Ends a put whose caller was cancelled."""


class ObstoreObjects:
    """A bucket of S3, GCS or Azure, or a folder. Create it inside a running event loop."""

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings
        self._obstore, self._store = _connect(settings)
        self._abandoned: set[asyncio.Future[Any]] = set()

    async def put(self, key: str, source: Source) -> None:
        large = isinstance(source, FileRange) and source.size_bytes > self._settings.part_bytes
        with _translated(key, missing=ObjectRefused):
            if large:
                assert isinstance(source, FileRange)
                await self._put_in_parts(key, source)
            else:
                if isinstance(source, FileRange):
                    source = b"".join([part async for part in source.parts(source.size_bytes)])
                await self._obstore.put_async(self._store, key, source, use_multipart=False)
        if self._settings.scheme == "file":
            await asyncio.to_thread(_make_durable, self._settings.prefix, key)

    async def _put_in_parts(self, key: str, source: FileRange) -> None:
        given_up = False

        async def parts() -> AsyncIterator[bytes]:
            async for part in source.parts(self._settings.part_bytes):
                yield part
                if given_up:
                    raise _Abandoned

        upload = asyncio.ensure_future(
            self._obstore.put_async(
                self._store,
                key,
                parts(),
                chunk_size=self._settings.part_bytes,
                max_concurrency=self._settings.parts_at_once,
            )
        )
        try:
            await asyncio.shield(upload)
        except asyncio.CancelledError:
            given_up = True
            self._abandoned.add(upload)
            upload.add_done_callback(self._forget)
            raise

    def _forget(self, upload: asyncio.Future[Any]) -> None:
        self._abandoned.discard(upload)
        if not upload.cancelled():
            upload.exception()

    async def get(self, key: str, start: int, size_bytes: int) -> Buffer:
        with _translated(key):
            data = memoryview(
                await self._obstore.get_range_async(
                    self._store, key, start=start, length=size_bytes
                )
            )
        if len(data) != size_bytes:
            raise ObjectCorrupt(key, f"{len(data)} bytes from {start}, not {size_bytes}")
        return data

    async def head(self, key: str) -> ObjectInfo:
        with _translated(key):
            return _info(await self._obstore.head_async(self._store, key))

    async def pages(self, prefix: str) -> AsyncIterator[list[ObjectInfo]]:
        with _translated(prefix):
            async for page in self._obstore.list(self._store, prefix or None):
                yield [_info(found) for found in page]

    async def delete(self, keys: Sequence[str]) -> None:
        for at in range(0, len(keys), _DELETED_TOGETHER):
            together = list(keys[at : at + _DELETED_TOGETHER])
            try:
                await self._delete(together[0], together)
            except ObjectNotFound:
                for key in together:
                    await self._delete_one(key)

    async def _delete_one(self, key: str) -> None:
        try:
            await self._delete(key, key)
        except ObjectNotFound:
            return

    async def _delete(self, name: str, keys: str | list[str]) -> None:
        with _translated(name):
            await self._obstore.delete_async(self._store, keys)

    async def close(self) -> None:
        if self._abandoned:
            await asyncio.wait(self._abandoned, timeout=self._settings.timeout_ms / 1000.0)


def _connect(settings: StoreSettings) -> tuple[Any, Any]:
    """Return the library and its store. Raises ObjectRefused for invalid settings."""
    import obstore
    from obstore import store

    _start_threads(obstore, store.MemoryStore())
    try:
        if settings.scheme == "file":
            return obstore, store.LocalStore(settings.prefix, mkdir=True)
        kind = {"s3": store.S3Store, "gs": store.GCSStore, "az": store.AzureStore}
        return obstore, kind[settings.scheme](
            settings.bucket,
            prefix=settings.prefix or None,
            config=dict(settings.options),
            client_options={
                "timeout": timedelta(milliseconds=settings.timeout_ms),
                "connect_timeout": timedelta(milliseconds=settings.connect_timeout_ms),
                "allow_http": settings.plain_http,
            },
            retry_config={
                "max_retries": settings.retries,
                "retry_timeout": timedelta(milliseconds=settings.timeout_ms),
            },
        )
    except (ValueError, OSError, obstore.exceptions.BaseError) as error:
        raise ObjectRefused(settings.url, _short(error)) from None


def _start_threads(obstore: Any, anywhere: Any) -> None:
    """Let the library start its threads now, from a thread whose priority they inherit.

    They belong to the process, so only the first store starts them.
    """

    def start() -> None:
        if sys.platform == "linux":  # elsewhere threads have no priority of their own
            nice = os.getpriority(os.PRIO_PROCESS, 0) + _NICE
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)
        obstore.put(anywhere, "started", b"")

    starter = threading.Thread(target=start)
    starter.start()
    starter.join()


def _info(found: Any) -> ObjectInfo:
    modified_ms = int(found["last_modified"].timestamp() * 1000)
    return ObjectInfo(found["path"], found["size"], modified_ms)


@contextmanager
def _translated(key: str, missing: type[ObjectError] = ObjectNotFound) -> Iterator[None]:
    """Translate obstore's errors to the port's. `missing`: the error for something that does not
    exist, which for a put is the bucket."""
    from obstore import exceptions

    try:
        yield
    except FileNotFoundError as error:
        raise missing(key, _short(error)) from None
    except (exceptions.BaseError, PermissionError) as error:
        raise _class_of(error, exceptions)(key, _short(error)) from None


def _class_of(error: Exception, exceptions: Any) -> type[ObjectError]:
    found = _STATUS.search(str(error))
    status = int(found.group(1)) if found else 0
    if isinstance(error, exceptions.NotFoundError):
        return ObjectNotFound
    if status == _RANGE_NOT_SATISFIABLE or _NO_SUCH_RANGE.search(str(error)):
        return ObjectCorrupt  # the object is shorter than the caller's metadata
    refused = (
        PermissionError,
        exceptions.PermissionDeniedError,
        exceptions.UnauthenticatedError,
        exceptions.InvalidPathError,
        exceptions.NotSupportedError,
        exceptions.UnknownConfigurationKeyError,
    )
    if isinstance(error, refused) or (400 <= status < 500 and status not in _TRY_AGAIN):
        return ObjectRefused
    return ObjectRetriable


def _short(error: Exception) -> str:
    text = str(error).partition("\n\nDebug source")[0]
    return _PLACES.sub(_without_place, text)[:_WHY_CHARS]


def _without_place(found: re.Match[str]) -> str:
    return found[0].partition(" ")[0] if not found[0].startswith(" ") else ""


def _make_durable(root: str, key: str) -> None:
    """Flush a file of a local store and the folders that lead to it, in a worker."""
    path = os.path.join(root, key)
    _fsync(path)
    while len(path) > len(root):
        path = os.path.dirname(path)
        _fsync(path)
    _fsync(os.path.dirname(root))


def _fsync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
