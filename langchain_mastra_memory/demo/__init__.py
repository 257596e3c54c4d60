"""The demonstration: one conversation in two operating-system processes over one database."""
