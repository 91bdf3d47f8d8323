"""What obstore alone does: put files into a bucket and print the figures as JSON.

    python -m bench.obstore_alone SETTINGS FOLDER ...

SETTINGS is JSON: `rsm.config.*` without that prefix. The files of a folder go one after the other,
the folders beside each other, as a broker copies the segments of its partitions; obstore itself
reads them.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from datetime import timedelta
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


async def put_all(settings: StoreSettings, folders: list[list[Path]]) -> float:
    """Put them; returns how many seconds it took."""
    store = S3Store(
        settings.bucket,
        prefix="alone",
        config=dict(settings.options),
        client_options={
            "timeout": timedelta(milliseconds=settings.timeout_ms),
            "allow_http": settings.plain_http,
        },
    )
    begin = time.monotonic()
    await asyncio.gather(*(_put(store, settings, paths) for paths in folders))
    return time.monotonic() - begin


def main() -> None:
    """See the module's description."""
    settings = StoreSettings.of(json.loads(sys.argv[1]))
    folders = [sorted(path for path in Path(one).iterdir()) for one in sys.argv[2:]]
    size_bytes = sum(path.stat().st_size for paths in folders for path in paths)
    took_s = asyncio.run(put_all(settings, folders))
    print(json.dumps({"mb_per_s": size_bytes / 1e6 / took_s}), flush=True)
    os._exit(0)  # the library's threads abort one process in fifteen that is finalised


if __name__ == "__main__":
    main()
