"""Threads: their queries and the checkpointer."""
