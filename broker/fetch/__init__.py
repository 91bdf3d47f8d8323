"""Fetch: the reads of consumers and followers, from the decoded request to the response."""
