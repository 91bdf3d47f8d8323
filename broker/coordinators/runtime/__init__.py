"""Runtime of a coordinator: loads the shards of an internal topic and carries out their decisions.

A coordinator's state is split into shards, one per partition of its topic. A shard is pure
(`shard.py`): it replays the partition's records and decides about requests (`decision.py`). The
runtime does the rest, for any kind of coordinator:

- `runtime.py`: slots for the partitions that this broker leads, and the requests to them;
- `loading.py`: replaying a partition in slices;
- `execution.py`: decide, append, apply; appends in flight; deadlines.
"""
