"""Observational memory: log, planning, observer, reflector, extractors, recall tool, node."""
