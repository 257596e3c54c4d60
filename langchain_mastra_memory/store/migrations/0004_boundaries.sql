CREATE TABLE mastra_boundaries (
    thread {int} NOT NULL REFERENCES mastra_threads (key) ON DELETE CASCADE,
    branch {int} NOT NULL,
    seq {int} NOT NULL,
    max_tokens {int} NOT NULL,
    remove_milli {int} NOT NULL,
    message_id {id} NOT NULL,
    created_at {int} NOT NULL,
    PRIMARY KEY (thread, branch, seq, max_tokens, remove_milli)
);
CREATE INDEX mastra_messages_outside ON mastra_messages (thread, seq) WHERE outside = 1;
