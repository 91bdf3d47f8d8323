"""Requests and responses over asyncio: server, handlers' table, client."""
