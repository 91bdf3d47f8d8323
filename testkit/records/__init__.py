"""Messages, record batches and metadata records for tests."""
