"""Nodes and clusters in processes of their own, and proxies between them."""
