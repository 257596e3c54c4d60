CREATE TABLE mastra_checkpoints (
    thread {int} NOT NULL REFERENCES mastra_threads (key) ON DELETE CASCADE,
    ns {id} NOT NULL,
    id {id} NOT NULL,
    parent {id},
    body {bytes} NOT NULL,
    metadata TEXT NOT NULL,
    run {id},
    hidden {int} NOT NULL,
    branch {int},
    head {int},
    base {int},
    created_at {int} NOT NULL,
    PRIMARY KEY (thread, ns, id)
);
CREATE INDEX mastra_checkpoints_by_run ON mastra_checkpoints (run) WHERE run IS NOT NULL;

CREATE TABLE mastra_bodies (
    thread {int} NOT NULL REFERENCES mastra_threads (key) ON DELETE CASCADE,
    space {id} NOT NULL,
    n {int} NOT NULL,
    id {id},
    form TEXT NOT NULL,
    body {bytes} NOT NULL,
    PRIMARY KEY (thread, space, n)
);

CREATE TABLE mastra_values (
    thread {int} NOT NULL REFERENCES mastra_threads (key) ON DELETE CASCADE,
    n {int} NOT NULL,
    body {bytes} NOT NULL,
    PRIMARY KEY (thread, n)
);

CREATE TABLE mastra_writes (
    thread {int} NOT NULL REFERENCES mastra_threads (key) ON DELETE CASCADE,
    ns {id} NOT NULL,
    checkpoint {id} NOT NULL,
    task_id {id} NOT NULL,
    task_path {id} NOT NULL,
    body {bytes} NOT NULL,
    PRIMARY KEY (thread, ns, checkpoint, task_id)
);
