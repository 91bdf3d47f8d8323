"""Classic consumer group protocol as a pure core, one `GroupShard` per topic partition.

Nothing here reads a clock, draws a random number, or awaits: `broker.coordinators.runtime` runs the
shards, `broker.coordinators.group_coordinator` serves the requests. Three kinds of state are kept
apart:

- *hard* state (`hard_state.py`): the content of `__consumer_offsets`. Changed by `replay` alone.
- *live* state (`live_group.py`): the running protocol: members, generation, waiting requests. It is
  soft: lost with leadership and rebuilt from hard state, as in Kafka.
- *timers* (`timers.py`): sessions and rebalance deadlines; soft too.
"""
