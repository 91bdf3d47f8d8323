"""Documents that users write and programs read, as pydantic models with a JSON Schema.

They are imported only to read such a document, and for `kraftbox schema`: no node imports pydantic.
"""
