CREATE TABLE mastra_pages (
    key {key},
    resource_id {id},
    thread {int} REFERENCES mastra_threads (key) ON DELETE CASCADE,
    version {int} NOT NULL,
    page TEXT,
    writer TEXT NOT NULL,
    call {id},
    branch {int},
    seq {int},
    message_id {id},
    stand_ins TEXT,
    created_at {int} NOT NULL
);
CREATE UNIQUE INDEX mastra_pages_of_resource ON mastra_pages (resource_id, version);
CREATE UNIQUE INDEX mastra_pages_of_thread ON mastra_pages (thread, version);
CREATE INDEX mastra_pages_by_call ON mastra_pages (call);

CREATE INDEX mastra_messages_signals ON mastra_messages (thread, seq) WHERE kind = 'signal';
