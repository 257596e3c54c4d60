"""The store: one protocol, one SQL engine, small wrappers."""
