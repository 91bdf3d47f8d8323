"""The choice of a consumer's replica, offsets by time, and size limits for reading on the loop."""
