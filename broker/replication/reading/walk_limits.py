"""Limits of a batch whose records are read on the event loop; a larger one goes to a worker.

Reading records costs microseconds each. A compressed batch may expand to a thousand times its size,
which its header does not show. Within these limits both take about a millisecond.
"""

from __future__ import annotations

from typing import Final

from protocol.batch.header import CODEC_MASK, BatchHeader

RECORDS_MAX: Final = 500
BYTES_MAX: Final = 32 * 1024
COMPRESSED_BYTES_MAX: Final = 4 * 1024


def is_heavy(header: BatchHeader, size_bytes: int) -> bool:
    """Return whether a batch of `size_bytes` is too large to be read on the event loop."""
    limit = COMPRESSED_BYTES_MAX if header.attributes & CODEC_MASK else BYTES_MAX
    return header.record_count > RECORDS_MAX or size_bytes > limit
