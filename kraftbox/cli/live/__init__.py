"""The live view of a cluster: `kraftbox top`, `kraftbox status --watch`.

- `facts` (pure) stores the nodes' answers with the times of their requests, drops those too old to
  be shown, and derives events from differences.
- `asking` queries each node separately, in the background.
- `drawing` (pure) formats the view as lines for a screen of any size.
- `screen` is the terminal.
"""
