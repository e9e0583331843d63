-- Ids sort by time: 48 bits of milliseconds, then the microseconds within, then chance (UUID version 7).
CREATE FUNCTION {schema.}tasklib_new_id() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
  SELECT (lpad(to_hex(us / 1000), 12, '0') || '7' || lpad(to_hex((us % 1000) * 4096 / 1000), 3, '0')
          || right(gen_random_uuid()::text, 17))::uuid
  FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS us) AS clock
$$;

-- A row with nothing but a name and kwargs is a complete task: every other column has a default.
-- Names and queues compare by bytes ("C"): it is faster, and the claim relies on it to hop from lane to lane.
CREATE TABLE {schema.}tasks (
    id                     uuid        NOT NULL DEFAULT {schema.}tasklib_new_id(),
    name                   text        COLLATE "C" NOT NULL,
    queue                  text        COLLATE "C" NOT NULL DEFAULT 'default',
    state                  text        NOT NULL DEFAULT 'pending',
    args                   jsonb       NOT NULL DEFAULT '{}',
    kwargs                 jsonb       NOT NULL DEFAULT '{}',
    result                 jsonb,
    error                  text,
    retry_count            integer     NOT NULL DEFAULT 0,
    max_retries            integer     NOT NULL DEFAULT 3,
    next_retry_at          timestamptz,
    scheduled_at           timestamptz NOT NULL DEFAULT now(),
    started_at             timestamptz,
    completed_at           timestamptz,
    created_at             timestamptz NOT NULL DEFAULT now(),
    worker_id              text,
    locked_until           timestamptz,
    timeout_seconds        integer,
    priority               integer     NOT NULL DEFAULT 0,
    tags                   jsonb       NOT NULL DEFAULT '{}',
    required_capabilities  text[]      COLLATE "C" NOT NULL DEFAULT '{}',
    idempotency_key        text,
    idempotency_expires_at timestamptz,
    trace_context          jsonb,
    lease_token            bigint      NOT NULL DEFAULT 0,
    crash_count            integer     NOT NULL DEFAULT 0,
    cancel_requested_at    timestamptz,
    progress               jsonb,
    history                jsonb,
    -- The lease token of the last attempt whose beginning was put on record, and whether that one must not be repeated.
    begun_token            bigint,
    at_most_once           boolean,
    CONSTRAINT tasks_pkey PRIMARY KEY (id),
    CONSTRAINT tasks_name_not_empty CHECK (name <> ''),
    CONSTRAINT tasks_state_known
        CHECK (state IN ('pending', 'running', 'completed', 'failed', 'cancelled', 'dead_letter')),
    CONSTRAINT tasks_kwargs_is_object CHECK (jsonb_typeof(kwargs) = 'object'),
    CONSTRAINT tasks_tags_is_object CHECK (jsonb_typeof(tags) = 'object'),
    CONSTRAINT tasks_priority_in_range CHECK (priority BETWEEN -10 AND 100),
    -- Not so large that counting on overflows, and one row stops the batch it is part of.
    CONSTRAINT tasks_counts_in_range
        CHECK (least(retry_count, max_retries, crash_count, lease_token) >= 0
               AND greatest(retry_count, crash_count) <= 1000000000 AND lease_token <= 1000000000000000),
    -- Moments that every client can read and count with; no infinity.
    CONSTRAINT tasks_times_in_range
        CHECK (least(next_retry_at, scheduled_at, started_at, completed_at, created_at, locked_until,
                     idempotency_expires_at, cancel_requested_at) >= '0001-01-03 00:00:00+00'
               AND greatest(next_retry_at, scheduled_at, started_at, completed_at, created_at, locked_until,
                            idempotency_expires_at, cancel_requested_at) < '9999-12-30 00:00:00+00'),
    CONSTRAINT tasks_capabilities_is_list CHECK (array_ndims(required_capabilities) = 1),
    CONSTRAINT tasks_timeout_positive CHECK (timeout_seconds > 0),
    CONSTRAINT tasks_running_has_lease
        CHECK ((state = 'running') = (worker_id IS NOT NULL AND locked_until IS NOT NULL)),
    CONSTRAINT tasks_failed_has_retry_time CHECK (state <> 'failed' OR next_retry_at IS NOT NULL),
    CONSTRAINT tasks_terminal_has_end
        CHECK ((state IN ('completed', 'cancelled', 'dead_letter')) = (completed_at IS NOT NULL))
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.05
);

-- The lanes: the claim hops from lane head to lane head, whatever is finished, not due or meant for others.
CREATE INDEX tasks_claimable ON {schema.}tasks
    (queue, name, required_capabilities, priority, {due}, id)
    WHERE state IN ('pending', 'failed');

-- What runs now: small, and all that recovery has to look at.
CREATE INDEX tasks_running ON {schema.}tasks (locked_until) WHERE state = 'running';

CREATE UNIQUE INDEX tasks_idempotency ON {schema.}tasks (name, idempotency_key)
    WHERE idempotency_key IS NOT NULL;

-- A key is free again once its window has passed, through whatever door the next task comes.
CREATE FUNCTION {schema.}tasklib_free_expired_key() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.idempotency_expires_at := COALESCE(NEW.idempotency_expires_at, now() + interval '24 hours');
    EXECUTE format('UPDATE %I.tasks SET idempotency_key = NULL, idempotency_expires_at = NULL
                    WHERE name = $1 AND idempotency_key = $2 AND idempotency_expires_at <= now()', TG_TABLE_SCHEMA)
    USING NEW.name, NEW.idempotency_key;
    RETURN NEW;
END
$$;

CREATE TRIGGER tasks_free_expired_key BEFORE INSERT ON {schema.}tasks
    FOR EACH ROW WHEN (NEW.idempotency_key IS NOT NULL) EXECUTE FUNCTION {schema.}tasklib_free_expired_key();

-- One tiny notification per statement; PostgreSQL folds those of a transaction into one at commit.
CREATE FUNCTION {schema.}tasklib_wake() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('tasklib_' || TG_TABLE_SCHEMA, '');
    RETURN NULL;
END
$$;

CREATE TRIGGER tasks_wake AFTER INSERT ON {schema.}tasks
    FOR EACH STATEMENT EXECUTE FUNCTION {schema.}tasklib_wake();
