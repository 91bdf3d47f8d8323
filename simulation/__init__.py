"""Simulation of whole clusters in one process on virtual time, from one seed."""
