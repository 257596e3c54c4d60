"""The SQL engine: one schema and one body for SQLite and PostgreSQL."""
