"""The result of an audit as text, JSON and one HTML page."""
