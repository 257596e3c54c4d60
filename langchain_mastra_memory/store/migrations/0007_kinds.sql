-- Rows that are no ordinary messages are few; a count of what is shown is the count of all but these.
CREATE INDEX mastra_messages_by_kind ON mastra_messages (thread, kind, seq, branch) WHERE kind IS NOT NULL;
