from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from testkit.memory.tier_brokers import TierWorld


@pytest.fixture
async def world() -> AsyncIterator[TierWorld]:
    """Return brokers of one tiered partition, in memory."""
    each = TierWorld()
    yield each
    await each.close()
