"""Object stores for the storage tests: in memory, files, and servers of S3 and Azure."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

import pytest

from storage.objects import MemoryObjects, Objects, StoreSettings, open_objects
from testkit.processes.object_servers import PART_BYTES, ServerMissing, Servers


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(tmp_path_factory.mktemp("stores"), stack)


@pytest.fixture(
    params=[
        "memory",
        "file",
        "moto",
        pytest.param("versitygw", marks=pytest.mark.rest),
        pytest.param("azurite", marks=pytest.mark.rest),
    ]
)
def options(request: pytest.FixtureRequest, servers: Servers) -> dict[str, str] | None:
    """Return the settings of a store; None stands for the one in memory."""
    if request.param == "memory":
        return None
    pytest.importorskip("obstore", reason="obstore is not here (docs/gaps.md)")
    try:
        return servers.options(request.param)
    except ServerMissing as missing:
        pytest.skip(f"{missing} (docs/gaps.md)")


@pytest.fixture
async def objects(options: dict[str, str] | None) -> AsyncIterator[Objects]:
    store: Objects
    if options is None:
        store = MemoryObjects()
    else:
        given = {"part.bytes": str(PART_BYTES), "retries": "0", "timeout.ms": "20000"}
        store = open_objects(StoreSettings.of({**options, **given}))
    yield store
    await store.close()
