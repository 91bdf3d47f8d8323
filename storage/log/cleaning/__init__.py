"""Log compaction: only the newest record of each key stays (`cleanup.policy=compact`).

    plan          the dirtiest log, the range that may be cleaned, the grouping of segments
    key_offsets   key -> newest offset over the dirty section, within a memory budget
    transactions  aborted transactions, and markers that have lost all their records
    walk          the two passes over a batch's records: collecting keys, selecting records
    rewrite       the remaining content of one batch
    job           one round over one log, as steps: from segments to `.cleaned` files
    workers       execution of the steps: in a helper process, or in slices on the event loop
    swap          `.cleaned` -> `.swap` -> the log, so that a crash leaves old or new segments
    cleaner       the shell: chooses, runs, swaps, maintains `cleaner-offset-checkpoint`

A round reads the dirty section (from the checkpoint on) into a map of keys and offsets. Then it
reads the log from its start up to the end of the map and writes the remaining records. Batches keep
their offset range, epoch and producer fields, so the result has gaps and is otherwise the same log.
Tombstones stay for `delete.retention.ms` after the first round that saw them. Transaction markers
stay while a record of their transaction is left, and then as long as tombstones. The deadline is
stored in the batch itself (the delete horizon, KIP-534).
"""
