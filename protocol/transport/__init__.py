"""Requests and responses over asyncio: server, handler table, client."""
