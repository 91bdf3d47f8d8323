"""Throughput of obstore alone: put files into a bucket and print the figures as JSON.

    python -m bench.obstore_alone [--every SECONDS] SETTINGS FOLDER ...

SETTINGS is JSON: `rsm.config.*` without that prefix. The files of a folder are uploaded one after
the other and the folders in parallel, as a broker copies the segments of its partitions; obstore
itself reads the files.

With `--every` one file of each folder is uploaded in each interval, until the process is ended.
That shows the cost of a broker's copies for other processes of the machine, without the broker.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from datetime import timedelta
from itertools import count
from pathlib import Path

import obstore
from obstore.store import S3Store

from storage.objects.settings import StoreSettings


async def _put(store: S3Store, settings: StoreSettings, paths: list[Path]) -> None:
    for path in paths:
        await obstore.put_async(
            store,
            f"{path.parent.name}/{path.name}",
            path,
            chunk_size=settings.part_bytes,
            max_concurrency=settings.parts_at_once,
        )


def _connect(settings: StoreSettings) -> S3Store:
    return S3Store(
        settings.bucket,
        prefix="alone",
        config=dict(settings.options),
        client_options={
            "timeout": timedelta(milliseconds=settings.timeout_ms),
            "allow_http": settings.plain_http,
        },
    )


async def put_all(settings: StoreSettings, folders: list[list[Path]]) -> float:
    """Upload the files; return the seconds."""
    store = _connect(settings)
    begin = time.monotonic()
    await asyncio.gather(*(_put(store, settings, paths) for paths in folders))
    return time.monotonic() - begin


async def put_for_ever(settings: StoreSettings, folders: list[list[Path]], every_s: float) -> None:
    """Upload a segment of each folder per interval, without end."""
    store = _connect(settings)
    for number in count():
        begin = time.monotonic()
        puts = []
        for paths in folders:
            logs = [path for path in paths if path.suffix == ".log"]
            puts.append(_put(store, settings, [logs[number % len(logs)]]))
        await asyncio.gather(*puts)
        await asyncio.sleep(max(0.0, begin + every_s - time.monotonic()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings")
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--every", type=float)
    options = parser.parse_args()
    settings = StoreSettings.of(json.loads(options.settings))
    folders = [sorted(folder.iterdir()) for folder in options.folders]
    if options.every:
        asyncio.run(put_for_ever(settings, folders, options.every))
    size_bytes = sum(path.stat().st_size for paths in folders for path in paths)
    took_s = asyncio.run(put_all(settings, folders))
    print(json.dumps({"mb_per_s": size_bytes / 1e6 / took_s}), flush=True)
    os._exit(0)  # the library's threads abort one process in fifteen at interpreter shutdown


if __name__ == "__main__":
    main()
