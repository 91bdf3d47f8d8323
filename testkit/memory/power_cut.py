"""A power cut in the middle of a file operation."""

from __future__ import annotations


class PowerCut(BaseException):
    """Not an Exception, so that nothing in between swallows it."""
