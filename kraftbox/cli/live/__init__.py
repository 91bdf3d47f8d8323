"""The view of a cluster that is always of now: `kraftbox top`, `kraftbox status --watch`.

`facts` (pure) keeps what each node said and when it was asked, forgets what is too old to be shown,
and tells events from differences; `asking` asks each node by itself, in the background; `drawing`
(pure) makes lines of it for a screen of any size; `screen` is the terminal.
"""
