-- Who works here. An id is never used twice: each start has a fresh one. Read it through the view `workers`, which says
-- who is alive: `reported_status` is what the worker last said, or the leader of it, and may be long out of date.
CREATE TABLE {schema.}worker_registrations (
    id                 text        NOT NULL,
    reported_status    text        NOT NULL DEFAULT 'active',
    queues             text[],
    names              text[]      DEFAULT '{}', -- null: any
    capabilities       text[]      NOT NULL DEFAULT '{}',
    capacity           integer     NOT NULL DEFAULT 1,
    current_load       integer     NOT NULL DEFAULT 0,
    version            text        NOT NULL DEFAULT '',
    host               text        NOT NULL DEFAULT '',
    pid                integer     NOT NULL DEFAULT 0,
    started_at         timestamptz NOT NULL DEFAULT now(),
    last_heartbeat     timestamptz NOT NULL DEFAULT now(),
    drain_requested_at timestamptz,
    -- How many tasks it may have begun whose results are not stored yet; null: all it holds.
    may_begin          integer,
    -- The worker's own setting: it gives its tasks up by itself before it has been silent for this long.
    heartbeat_timeout_seconds double precision NOT NULL DEFAULT 90,
    CONSTRAINT worker_registrations_pkey PRIMARY KEY (id),
    CONSTRAINT worker_registrations_status_known CHECK (reported_status IN ('active', 'draining', 'dead')),
    CONSTRAINT worker_registrations_load_not_negative CHECK (capacity >= 0 AND current_load >= 0),
    CONSTRAINT worker_registrations_timeout_in_range
        CHECK (heartbeat_timeout_seconds > 0 AND heartbeat_timeout_seconds <= 31536000000),
    CONSTRAINT worker_registrations_times_in_range
        CHECK (least(started_at, last_heartbeat, drain_requested_at) >= '0001-01-03 00:00:00+00'
               AND greatest(started_at, last_heartbeat, drain_requested_at) < '9999-12-30 00:00:00+00')
) WITH (fillfactor = 50);

-- One row: who leads, in which term, until when. The term grows with every change of hands.
CREATE TABLE {schema.}leadership (
    one        boolean     NOT NULL DEFAULT true,
    holder     text        NOT NULL,
    term       bigint      NOT NULL DEFAULT 1,
    expires_at timestamptz NOT NULL,
    CONSTRAINT leadership_pkey PRIMARY KEY (one),
    CONSTRAINT leadership_is_one_row CHECK (one)
) WITH (fillfactor = 50);

-- What nobody may claim for now.
CREATE TABLE {schema.}pauses (
    kind      text        NOT NULL,
    value     text        COLLATE "C" NOT NULL,
    paused_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pauses_pkey PRIMARY KEY (kind, value),
    CONSTRAINT pauses_kind_known CHECK (kind IN ('queue', 'name')),
    CONSTRAINT pauses_time_in_range
        CHECK (paused_at >= '0001-01-03 00:00:00+00' AND paused_at < '9999-12-30 00:00:00+00')
);

-- Settings of the whole fleet that change at run time; null leaves a setting to each program's configuration.
CREATE TABLE {schema.}settings (
    one                             boolean NOT NULL DEFAULT true,
    promote_to_medium_after_seconds double precision,
    promote_to_high_after_seconds   double precision,
    CONSTRAINT settings_pkey PRIMARY KEY (one),
    CONSTRAINT settings_is_one_row CHECK (one),
    -- At most a thousand years: every claim counts with them.
    CONSTRAINT settings_thresholds_in_range
        CHECK (least(promote_to_medium_after_seconds, promote_to_high_after_seconds) > 0
               AND greatest(promote_to_medium_after_seconds, promote_to_high_after_seconds) <= 31536000000)
);
INSERT INTO {schema.}settings DEFAULT VALUES;

-- What the leader last counted, for whoever shows figures.
CREATE TABLE {schema.}snapshots (
    one      boolean     NOT NULL DEFAULT true,
    taken_at timestamptz NOT NULL,
    figures  jsonb       NOT NULL,
    CONSTRAINT snapshots_pkey PRIMARY KEY (one),
    CONSTRAINT snapshots_is_one_row CHECK (one)
);

-- Written only by the tasks they speak of: dead letters, and tasks with a key.
CREATE INDEX tasks_dead_letter ON {schema.}tasks (completed_at, id) WHERE state = 'dead_letter';
CREATE INDEX tasks_idempotency_expiry ON {schema.}tasks (idempotency_expires_at) WHERE idempotency_key IS NOT NULL;

-- How high a task stands after waiting since `due`: low counts as medium, then any as high.
CREATE FUNCTION {schema.}tasklib_effective_priority(
    priority integer, due timestamptz, medium_after double precision, high_after double precision, moment timestamptz)
RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN due <= moment - make_interval(secs => high_after + CASE WHEN priority < 0 THEN medium_after ELSE 0 END)
            THEN greatest(priority, 100)
        WHEN due <= moment - make_interval(secs => medium_after) THEN greatest(priority, 0)
        ELSE priority END
$$;

-- The same of a row, for anybody's SELECT: tasklib_effective_priority(tasks). What doesn't wait has its own priority.
CREATE FUNCTION {schema.}tasklib_effective_priority(task {schema.}tasks) RETURNS integer LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN task.state IN ('pending', 'failed') THEN {schema.}tasklib_effective_priority(
        task.priority, COALESCE(task.next_retry_at, task.scheduled_at),
        COALESCE(settings.promote_to_medium_after_seconds, 600),
        COALESCE(settings.promote_to_high_after_seconds, 1200), now())
    ELSE task.priority END
    FROM {schema.}settings
$$;

-- What dead letters with the same cause have in common: the name, and the last line of the error without what differs
-- from task to task: quoted text, ids, numbers, the worker. By bytes ("C"), so that it is the same in every database.
CREATE FUNCTION {schema.}tasklib_fingerprint(name text, error text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT md5(concat(name, E'\n',
        regexp_replace(regexp_replace(regexp_replace(regexp_replace(
            left(split_part(rtrim(error, E' \t\r\n'), E'\n', -1), 1000) COLLATE "C",
            E'(?<!\\w)"[^"]*"|(?<!\\w)''[^'']*''', '?', 'g'),
            E'\\mworker \\S+', 'worker', 'g'),
            E'\\m[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\\M|\\m[0-9a-fA-F]{8,}\\M|-?\\w*\\d\\w*', '#', 'g'),
            '#([.,:-]#)+', '#', 'g')))
$$;
