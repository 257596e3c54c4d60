CREATE TABLE mastra_logs (
    key {key},
    scope {id} NOT NULL UNIQUE,
    thread {int} REFERENCES mastra_threads (key) ON DELETE CASCADE,
    resource_id {id},
    epoch {id} NOT NULL,
    version {int} NOT NULL,
    refused {int},
    created_at {int} NOT NULL
);
CREATE INDEX mastra_logs_of_thread ON mastra_logs (thread);
CREATE INDEX mastra_logs_of_resource ON mastra_logs (resource_id);
CREATE TABLE mastra_log_rows (
    id {id} NOT NULL PRIMARY KEY,
    log {int} NOT NULL REFERENCES mastra_logs (key) ON DELETE CASCADE,
    inputs TEXT NOT NULL,
    text TEXT NOT NULL,
    tokens {int} NOT NULL,
    message_tokens {int} NOT NULL,
    messages {int} NOT NULL,
    hints TEXT NOT NULL,
    extracted TEXT NOT NULL,
    first_at {int},
    last_at {int},
    model TEXT,
    origin {id},
    stale {int} NOT NULL,
    terms {bytes},
    created_at {int} NOT NULL
);
CREATE INDEX mastra_log_rows_of_log ON mastra_log_rows (log);
CREATE TABLE mastra_log_spans (
    row_id {id} NOT NULL REFERENCES mastra_log_rows (id) ON DELETE CASCADE,
    thread {int} NOT NULL,
    branch {int} NOT NULL,
    after_seq {int} NOT NULL,
    upto {int} NOT NULL,
    PRIMARY KEY (row_id, thread)
);
CREATE INDEX mastra_log_spans_of_thread ON mastra_log_spans (thread, upto);
CREATE TABLE mastra_log_heads (
    log {int} NOT NULL REFERENCES mastra_logs (key) ON DELETE CASCADE,
    version {int} NOT NULL,
    line {int} NOT NULL,
    at_seq {int} NOT NULL,
    names TEXT NOT NULL,
    created_at {int} NOT NULL,
    PRIMARY KEY (log, version)
);
CREATE INDEX mastra_log_heads_of_line ON mastra_log_heads (log, line, version);
CREATE TABLE mastra_log_claims (
    log {int} NOT NULL REFERENCES mastra_logs (key) ON DELETE CASCADE,
    line {int} NOT NULL,
    phase {id} NOT NULL,
    owner {id} NOT NULL,
    expires_at {int} NOT NULL,
    PRIMARY KEY (log, line, phase)
);
CREATE TABLE mastra_log_calls (
    key {key},
    log {int} NOT NULL REFERENCES mastra_logs (key) ON DELETE CASCADE,
    phase TEXT NOT NULL,
    outcome TEXT NOT NULL,
    model TEXT,
    input_tokens {int} NOT NULL,
    output_tokens {int} NOT NULL,
    total_tokens {int} NOT NULL,
    duration_ms {int} NOT NULL,
    details TEXT NOT NULL,
    created_at {int} NOT NULL
);
CREATE INDEX mastra_log_calls_of_log ON mastra_log_calls (log);
