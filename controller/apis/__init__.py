"""The controller's API handlers, one file per key: request to decision, reply to response.

The rules of the decisions are in the pure modules of `controller`. Each file opens with key,
versions and behaviour. `register` adds the handler to the table of a controller listener. Only the
active controller answers requests that change metadata; other controllers return NOT_CONTROLLER.
"""
