"""Replay of decided records on the working image, and their append to the quorum.

A batch is replayed as the log will contain it (without fields that the finalised metadata.version
lacks). Only then is it appended. A decided record that does not replay stops the process
(InvariantViolated): it must not reach the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from controller.decision import ControllerView
from controller.directory_moves import DirectoryMoves
from controller.elections.passed_over import elections_by_local_logs, passed_over
from controller.report_epochs import ReportEpochs
from controller.writer.stats import ControllerStats, last_known_leaders
from metalog.image.features import METADATA_VERSION, MINIMUM_METADATA_VERSION, record_version
from metalog.image.replay import GrowingImage, ReplayError, described
from metalog.image.snapshot import fit_record
from metalog.image.values import MetadataImage
from metalog.log_image import LogImage
from protocol.errors import ApiError, EncodeError, ErrorCode
from protocol.metadata import FeatureLevelRecord, PartitionChangeRecord
from protocol.schema import MetadataRecord
from runtime.errors import InvariantViolated
from runtime.log import get_logger
from runtime.tasks import Supervisor

_log = get_logger("controller")


class Quorum(Protocol):
    """The parts of the metadata quorum that the controller uses."""

    @property
    def node_id(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...

    def leader(self) -> tuple[int | None, int]: ...

    def append(self, epoch: int, records: Sequence[Any], *, metadata_version: int) -> int:
        """Append one atomic batch and return the offset of its last record. Raises NotLeader."""
        ...


class Written(NamedTuple):
    """A batch that was appended.

    records: as the log contains them. image: after them.
    """

    records: Sequence[MetadataRecord]
    image: MetadataImage
    last_offset: int


class BatchWriter:
    """The batches of a controller, and the soft state that belongs to the working image.

    Args:
        view_of: returns the view of an image for a decision.
    """

    def __init__(
        self,
        quorum: Quorum,
        log_image: LogImage,
        stats: ControllerStats,
        supervisor: Supervisor,
        *,
        view_of: Callable[[MetadataImage], ControllerView],
    ) -> None:
        self.report_epochs = ReportEpochs()
        self.directory_moves = DirectoryMoves()
        self._quorum = quorum
        self._log_image = log_image
        self._stats = stats
        self._supervisor = supervisor
        self._view_of = view_of

    def append(self, records: Sequence[MetadataRecord], epoch: int) -> Written:
        """Replay and append one batch.

        Raises:
            NotLeader: this node does not lead `epoch`.
            ApiError: a record cannot be encoded, or the quorum refuses the batch.
        """
        before = self._log_image.working
        level = _level_after(before, records)
        records = [fit_record(r, record_version(type(r).__name__, level)) for r in records]
        image = self._replayed(before, records)
        base_offset = self._quorum.log_end_offset
        expected = base_offset + len(records) - 1
        try:
            last_offset = self._quorum.append(epoch, records, metadata_version=level)
        except EncodeError as error:
            raise self._unwritable(error) from error
        if last_offset != expected:
            raise self._broken(f"the batch ends at offset {last_offset}, expected {expected}")
        self._log_image.append(image, base_offset=base_offset, epoch=epoch)
        self._stats.count_elections(records)
        self.report_epochs.note(image, records)
        self.directory_moves.note(before, records)
        by_local_logs = elections_by_local_logs(image, records)
        if by_local_logs:
            self._stats.passed_over += passed_over(self._view_of(image), by_local_logs)
        _warn_of_last_known(image, last_known_leaders(records))
        return Written(records, image, last_offset)

    def drop_appended(self) -> None:
        """Drop the uncommitted records of the working image, and the state that belongs to them."""
        self._log_image.drop_appended()
        self.report_epochs.clear()
        self.directory_moves.clear()

    def _replayed(self, image: MetadataImage, records: Iterable[MetadataRecord]) -> MetadataImage:
        growing = GrowingImage(image)
        for record in records:
            try:
                growing.add(record)
            except ReplayError as error:
                self._stats.metadata_errors += 1
                raise self._broken(
                    f"cannot replay a decided record: {error}; record: {described(record)}"
                ) from error
        return growing.finish()

    def _unwritable(self, error: EncodeError) -> ApiError:
        """Return the error for a record that cannot be encoded; nothing was appended, and the image
        is unchanged."""
        self._stats.metadata_errors += 1
        # The value is left out: that of a configuration may be a password.
        why = f"{error.what} (allowed: {error.allowed})"
        _log.error("A decided record cannot be written", error=why)
        return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"cannot write a decided record: {why}")

    def _broken(self, message: str) -> InvariantViolated:
        error = InvariantViolated(message)
        self._supervisor.report("controller", error)
        return error


def _level_after(image: MetadataImage, records: Iterable[MetadataRecord]) -> int:
    """Return the `metadata.version` level in force after the records are written."""
    level = image.metadata_version
    for record in records:
        if type(record) is FeatureLevelRecord and record.name == METADATA_VERSION:
            level = record.feature_level
    return MINIMUM_METADATA_VERSION.level if level is None else level


def _warn_of_last_known(image: MetadataImage, changes: Sequence[PartitionChangeRecord]) -> None:
    """Log one line for a batch: a power failure may cause ten thousand such elections."""
    if changes:
        one = changes[0]
        name = image.topics.by_id[one.topic_id].name
        _log.warning(
            "Elected last known leaders because no clean replica was left; "
            "records that they had not flushed are lost",
            partitions=len(changes),
            one=f"{name}-{one.partition_id}",
            leader=one.leader,
        )
