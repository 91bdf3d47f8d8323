"""Local clusters: planning, forking, supervision, and control through the cluster's directory.

- `plan` (pure) computes the nodes and their properties; `place` stores them in the directory.
- `fork_server` is the process that nodes are forked from; `node_process` runs in such a child.
- `states` (pure) is the supervisor's state machine of the nodes; `supervisor` is the process that
  carries out its effects.
- `control` connects commands to the supervisor.

All of them exchange messages in the format of `frames`.
"""
