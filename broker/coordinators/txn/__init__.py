"""Pure core of the transaction coordinator (KIP-98, KIP-360, KIP-890).

Not wired yet: no API uses these modules.

- `states.py`: the states of a transactional id, and every transition between them;
- `transaction.py`: the value of a transactional id, an immutable tuple;
- `records.py`: its record in `__transaction_state`;
- `init_producer.py`, `partitions.py`, `ending.py`, `time_limits.py`: decisions, each from the
  present value to an `Outcome` (`outcome.py`) that contains the next one;
- `views.py`: DescribeTransactions and ListTransactions;
- `shard.py`: all transactional ids of a partition, as the runtime runs them: pending transitions,
  `markers.py`, timeouts; its decisions and effects are in `decision.py`.

Two numbers are called a transaction version. The *level* is the cluster's finalised feature
`transaction.version`. It determines the version of the record, and aborts that the coordinator
starts. The *client's version* follows from the version of a request, and determines the effect of
the request.
"""
