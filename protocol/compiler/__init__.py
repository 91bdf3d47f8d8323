"""Compilers from the schema of one message version to Python source that encodes or decodes it."""
