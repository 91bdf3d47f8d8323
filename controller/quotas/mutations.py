"""The quota of controller mutations (KIP-599, `controller_mutation_rate`).

Every partition that is created or deleted takes one token out of the client's bucket, which fills
at the allowed rate. A change of any size is accepted while the bucket is not below zero. Below zero
a strict request is refused, topic by topic, until the bucket has filled. Any other request is
accepted, and its client gets a throttle time. Requests are strict from the first version in which
clients know the error.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from metalog.image.values import MetadataImage
from protocol.errors import ApiError, ErrorCode
from runtime.config import keys_quotas
from runtime.metrics import Family, single
from runtime.rates import WINDOW_COUNT, WINDOW_MS, TokenBucket
from serving.quota_limits import Bearer, QuotaLimits

BUCKETS_MAX: Final = 10_000
"""Limit of buckets. Above it full ones are dropped (a new one is full too), and if none is full,
the oldest tenth."""

KEY: Final = keys_quotas.CONTROLLER_MUTATION_RATE.name
RESOURCE: Final = "ControllerMutation"


class Spending:
    """Partitions that one request changes, charged during its decision. `left`: tokens before."""

    __slots__ = ("bearer", "left", "refused", "spent", "strict")

    def __init__(self, bearer: Bearer, left: float, *, strict: bool) -> None:
        self.bearer = bearer
        self.left = left
        self.strict = strict
        self.spent = 0
        self.refused = False

    def charge(self, partitions: int) -> None:
        """Charge the request for `partitions`.

        Raises:
            ApiError: THROTTLING_QUOTA_EXCEEDED, the request is strict and the bucket is below zero.
        """
        if self.strict and self.left - self.spent < 0:
            self.refused = True
            raise ApiError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"the client exceeded its quota {KEY}; retry after the throttle time",
            )
        self.spent += partitions


class MutationQuotas:
    """The cluster's limits, and the buckets of clients that changed partitions here."""

    def __init__(self, *, window_count: int = WINDOW_COUNT, window_ms: float = WINDOW_MS) -> None:
        self._window_count = window_count
        self._window_ms = window_ms
        self._limits = QuotaLimits(KEY)
        self._quotas: object = None
        self._buckets: dict[Bearer, TokenBucket] = {}
        self.throttled = 0

    def publish(self, image: MetadataImage) -> None:
        """Use the quotas of the newest committed image; spent tokens stay spent."""
        if image.client_quotas is not self._quotas:
            self._quotas = image.client_quotas
            self._limits.replace(image.client_quotas)

    def begin(self, user: str, client_id: str, *, strict: bool, now_ms: float) -> Spending | None:
        """Return the spending of a request of this client; None if it has no limit."""
        limit = self._limits.of(user, client_id)
        if limit is None:
            return None
        bucket = self._buckets.get(limit.bearer)
        if bucket is None:
            self._make_room(now_ms)
            bucket = TokenBucket(limit.per_second, now_ms, self._window_count, self._window_ms)
            self._buckets[limit.bearer] = bucket
        elif bucket.rate != limit.per_second:
            bucket.set_rate(limit.per_second, now_ms)
        return Spending(limit.bearer, bucket.tokens(now_ms), strict=strict)

    def settle(self, spending: Spending | None, now_ms: float) -> int:
        """Take the spent tokens out of the bucket. Returns: the throttle time in ms.

        A strict request is throttled if it was refused, any other if its client's bucket is below
        zero.
        """
        if spending is None:
            return 0
        bucket = self._buckets.get(spending.bearer)
        if bucket is None:
            return 0
        bucket.spend(spending.spent, now_ms)
        if spending.strict and not spending.refused:
            return 0
        wait_ms = round(bucket.wait_ms(now_ms))
        self.throttled += wait_ms > 0
        return wait_ms

    def collect(self, now_ms: float) -> Iterator[Family]:
        """Yield metrics: the remaining tokens of clients that have used up some of a limit."""
        yield Family(
            "kafka_server_quota_tokens",
            "Partitions that a limited client may create or delete now; negative if "
            "it exceeded its quota",
            "gauge",
            [
                (
                    {"resource": RESOURCE, "user": user or "", "clientId": client_id or ""},
                    bucket.tokens(now_ms),
                )
                for (user, client_id), bucket in self._buckets.items()
                if not bucket.is_full(now_ms)
            ],
        )
        yield single(
            "kraftbox_mutation_quota_throttled_total",
            "Throttled requests to create or delete partitions",
            self.throttled,
            "counter",
        )

    def _make_room(self, now_ms: float) -> None:
        if len(self._buckets) >= BUCKETS_MAX:
            kept = {bearer: b for bearer, b in self._buckets.items() if not b.is_full(now_ms)}
            if len(kept) >= BUCKETS_MAX:
                kept = dict(islice(kept.items(), BUCKETS_MAX // 10, None))
            self._buckets = kept
