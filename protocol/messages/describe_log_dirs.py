"""DescribeLogDirs (API key 35), versions 1-5."""

from __future__ import annotations

from protocol.schema import (
    FRESH,
    Request,
    Response,
    Struct,
    array,
    boolean,
    field,
    int16,
    int32,
    int64,
    string,
)


class DescribeLogDirsResponse(Response, api_key=35, versions="1-5", flexible="2+"):
    throttle_time_ms: int = field(int32, "0+", default=0)
    error_code: int = field(int16, "3+", ignorable=True, default=0)
    results: list[DescribeLogDirsResult] = field(
        array("DescribeLogDirsResult"), "0+", default=FRESH
    )

    class DescribeLogDirsResult(Struct):
        error_code: int = field(int16, "0+", default=0)
        log_dir: str = field(string, "0+", default="")
        topics: list[DescribeLogDirsResponse.DescribeLogDirsTopic] = field(
            array("DescribeLogDirsTopic"), "0+", default=FRESH
        )
        total_bytes: int = field(int64, "4+", ignorable=True, default=-1)
        usable_bytes: int = field(int64, "4+", ignorable=True, default=-1)
        is_cordoned: bool = field(boolean, "5+", ignorable=True, default=False)

    class DescribeLogDirsTopic(Struct):
        name: str = field(string, "0+", default="")
        partitions: list[DescribeLogDirsResponse.DescribeLogDirsPartition] = field(
            array("DescribeLogDirsPartition"), "0+", default=FRESH
        )

    class DescribeLogDirsPartition(Struct):
        partition_index: int = field(int32, "0+", default=0)
        partition_size: int = field(int64, "0+", default=0)
        offset_lag: int = field(int64, "0+", default=0)
        is_future_key: bool = field(boolean, "0+", default=False)


class DescribeLogDirsRequest(
    Request[DescribeLogDirsResponse],
    api_key=35,
    versions="1-5",
    flexible="2+",
    listeners=("broker",),
):
    topics: list[DescribableLogDirTopic] | None = field(
        array("DescribableLogDirTopic"), "0+", nullable="0+", default=FRESH
    )

    class DescribableLogDirTopic(Struct):
        topic: str = field(string, "0+", default="")
        partitions: list[int] = field(array(int32), "0+", default=FRESH)
