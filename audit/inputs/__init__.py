"""Inputs of an audit as values: metadata logs, replicas, acknowledged sends."""
