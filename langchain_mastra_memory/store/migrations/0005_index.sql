CREATE TABLE mastra_texts (
    key {key},
    thread {int} NOT NULL,
    seq {int} NOT NULL,
    branch {int} NOT NULL,
    terms {bytes} NOT NULL,
    chunks {int},
    point {int},
    FOREIGN KEY (thread, seq, branch) REFERENCES mastra_messages (thread, seq, branch) ON DELETE CASCADE
);
CREATE UNIQUE INDEX mastra_texts_by_place ON mastra_texts (thread, seq, branch);
CREATE INDEX mastra_texts_pending ON mastra_texts (thread, key) WHERE chunks IS NULL;
CREATE INDEX mastra_texts_by_point ON mastra_texts (point) WHERE point IS NOT NULL;

CREATE TABLE mastra_models (
    key {key},
    name {id} NOT NULL,
    dimension {int} NOT NULL
);
CREATE UNIQUE INDEX mastra_models_by_name ON mastra_models (name, dimension);

CREATE TABLE mastra_vectors (
    key {key},
    thread {int} NOT NULL,
    text {int} NOT NULL REFERENCES mastra_texts (key) ON DELETE CASCADE,
    chunk {int} NOT NULL,
    model {int} NOT NULL REFERENCES mastra_models (key),
    v {bytes} NOT NULL
);
CREATE UNIQUE INDEX mastra_vectors_by_text ON mastra_vectors (text, chunk);
CREATE INDEX mastra_vectors_by_thread ON mastra_vectors (thread, key);
CREATE INDEX mastra_vectors_by_model ON mastra_vectors (model);

CREATE TABLE mastra_outbox (
    point {int} NOT NULL,
    chunks {int} NOT NULL,
    until {int} NOT NULL,
    gone {int} NOT NULL,
    PRIMARY KEY (point)
);
CREATE INDEX mastra_outbox_due ON mastra_outbox (until) WHERE gone = 1;

CREATE TABLE mastra_recall (
    name {id} NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
);
INSERT INTO mastra_recall (name, value) VALUES ('terms', '1');
