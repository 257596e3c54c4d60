-- Placeholders: {bytes} {key} {int} {id}, see migrate.py. A statement ends with a semicolon at the end of its line.
CREATE TABLE mastra_threads (
    key {key},
    id {id} NOT NULL UNIQUE,
    resource_id {id},
    title TEXT,
    titled_by TEXT,
    metadata TEXT NOT NULL,
    next_seq {int} NOT NULL,
    branch {int} NOT NULL,
    head {int} NOT NULL,
    epoch {int} NOT NULL,
    texts {int} NOT NULL,
    edits {int} NOT NULL,
    created_at {int} NOT NULL,
    updated_at {int} NOT NULL
);
CREATE INDEX mastra_threads_by_resource ON mastra_threads (resource_id, created_at, id);

CREATE TABLE mastra_branches (
    thread {int} NOT NULL REFERENCES mastra_threads (key) ON DELETE CASCADE,
    branch {int} NOT NULL,
    path TEXT NOT NULL,
    created_at {int} NOT NULL,
    PRIMARY KEY (thread, branch)
);

CREATE TABLE mastra_messages (
    thread {int} NOT NULL REFERENCES mastra_threads (key) ON DELETE CASCADE,
    seq {int} NOT NULL,
    branch {int} NOT NULL,
    id {id} NOT NULL,
    role TEXT NOT NULL,
    kind TEXT,
    body {bytes} NOT NULL,
    metadata TEXT,
    tokens {int} NOT NULL,
    revision {int} NOT NULL,
    outside {int} NOT NULL,
    created_at {int} NOT NULL,
    PRIMARY KEY (thread, seq, branch)
);
CREATE UNIQUE INDEX mastra_messages_by_id ON mastra_messages (thread, id, branch);

CREATE TABLE mastra_tombstones (
    thread {int} NOT NULL REFERENCES mastra_threads (key) ON DELETE CASCADE,
    id {id} NOT NULL,
    created_at {int} NOT NULL,
    PRIMARY KEY (thread, id)
);

CREATE TABLE mastra_resources (
    id {id} NOT NULL PRIMARY KEY,
    metadata TEXT NOT NULL,
    derived_from {id},
    derived_agent {id},
    version {int} NOT NULL,
    created_at {int} NOT NULL,
    updated_at {int} NOT NULL
);
