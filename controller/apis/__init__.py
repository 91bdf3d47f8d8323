"""The controller's APIs, one file per key: from a request to a decision and from its reply to a
response. What is decided, and by which rules, stands in the pure modules of `controller`.

Each file opens with key, versions and behaviour; `register` adds the handler to the table of a
controller listener. Requests that change something are answered by the active controller only, all
others say NOT_CONTROLLER.
"""
