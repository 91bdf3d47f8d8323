"""Turns the schema of one message version into Python source for an encoder and a decoder."""
