"""A local cluster: planned, forked, supervised, and asked about through its directory.

`plan` (pure) says which nodes there are and with which properties; `place` keeps it in the
directory. `fork_server` is the process that nodes are forked from; `node_process` is what such a
child does. `states` (pure) is the life of the nodes as the supervisor sees it; `supervisor` is the
process that carries it out; `control` is how commands reach it. All talk in `frames`.
"""
