"""Log compaction: of every key only the newest record stays (`cleanup.policy=compact`).

    plan          which log is the dirtiest, up to where it may be cleaned, how segments are grouped
    key_offsets   key -> newest offset over the dirty section, within a budget of memory
    transactions  which transactions are aborted, and which markers have lost all their records
    walk          the two walks over the records of a batch: collecting keys, and judging records
    rewrite       what remains of one batch
    job           one round over one log, as steps: from segments to `.cleaned` files
    workers       where the steps run: in a helper process, or between other work of the loop
    swap          `.cleaned` -> `.swap` -> the log, without a moment in which either is half there
    cleaner       the shell: chooses, runs, swaps, keeps `cleaner-offset-checkpoint`

A round reads the dirty section (from the checkpoint on) into a map of keys and offsets, then reads
the log from its start up to where the map ends and writes what remains of it. Batches keep their
offset range, epoch and producer fields, so that what is left has gaps and is otherwise the same
log. Tombstones stay for `delete.retention.ms` after the first round that saw them, transaction
markers as long as a record of their transaction is left and then as long as tombstones; that time
is stored in the batch itself (the delete horizon, KIP-534).
"""
