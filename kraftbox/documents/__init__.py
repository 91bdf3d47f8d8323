"""Documents that people write and programs read, as pydantic models with a JSON Schema.

Loaded only where such a document is read, and for `kraftbox schema`: no node imports pydantic.
"""
