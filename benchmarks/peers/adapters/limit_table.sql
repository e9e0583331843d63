-- The smallest table that still keeps what a task queue must know, with the two indexes that its loop needs.
CREATE TABLE tasks (
    id              uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    name            text        NOT NULL,
    state           text        NOT NULL DEFAULT 'pending',
    args            jsonb       NOT NULL DEFAULT '[]',
    kwargs          jsonb       NOT NULL DEFAULT '{}',
    result          jsonb,
    error           text,
    retry_count     integer     NOT NULL DEFAULT 0,
    max_retries     integer     NOT NULL DEFAULT 3,
    next_retry_at   timestamptz,
    scheduled_at    timestamptz NOT NULL DEFAULT now(),
    started_at      timestamptz,
    completed_at    timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    worker_id       text,
    locked_until    timestamptz,
    timeout_seconds integer,
    priority        integer     NOT NULL DEFAULT 0,
    tags            jsonb       NOT NULL DEFAULT '[]'
) WITH (
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX tasks_claim ON tasks (priority DESC, scheduled_at, id) WHERE state = 'pending';
CREATE INDEX tasks_run ON tasks (locked_until) WHERE state = 'running';

CREATE FUNCTION wake() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('tasks', '');
    RETURN NULL;
END
$$;
CREATE TRIGGER tasks_wake AFTER INSERT ON tasks FOR EACH STATEMENT EXECUTE FUNCTION wake();
