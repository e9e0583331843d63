-- The migrations of TaskLib 0.1.0 (commit 9792eb8), one after the other, as they were.
-- ==== 0001 ====
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
    CONSTRAINT tasks_pkey PRIMARY KEY (id),
    CONSTRAINT tasks_name_not_empty CHECK (name <> ''),
    CONSTRAINT tasks_state_known
        CHECK (state IN ('pending', 'running', 'completed', 'failed', 'cancelled', 'dead_letter')),
    CONSTRAINT tasks_kwargs_is_object CHECK (jsonb_typeof(kwargs) = 'object'),
    CONSTRAINT tasks_tags_is_object CHECK (jsonb_typeof(tags) = 'object'),
    CONSTRAINT tasks_priority_in_range CHECK (priority BETWEEN -10 AND 100),
    CONSTRAINT tasks_counts_not_negative CHECK (retry_count >= 0 AND max_retries >= 0 AND crash_count >= 0),
    CONSTRAINT tasks_scheduled_at_known CHECK (scheduled_at > '-infinity'),
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
-- ==== 0002 ====
-- Who works here. An id is never used twice: each start has a fresh one.
CREATE TABLE {schema.}workers (
    id                 text        NOT NULL,
    status             text        NOT NULL DEFAULT 'active',
    queues             text[],
    names              text[]      NOT NULL DEFAULT '{}',
    capabilities       text[]      NOT NULL DEFAULT '{}',
    capacity           integer     NOT NULL DEFAULT 1,
    current_load       integer     NOT NULL DEFAULT 0,
    version            text        NOT NULL DEFAULT '',
    host               text        NOT NULL DEFAULT '',
    pid                integer     NOT NULL DEFAULT 0,
    started_at         timestamptz NOT NULL DEFAULT now(),
    last_heartbeat     timestamptz NOT NULL DEFAULT now(),
    drain_requested_at timestamptz,
    CONSTRAINT workers_pkey PRIMARY KEY (id),
    CONSTRAINT workers_status_known CHECK (status IN ('active', 'draining', 'dead')),
    CONSTRAINT workers_load_not_negative CHECK (capacity >= 0 AND current_load >= 0)
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
    CONSTRAINT pauses_kind_known CHECK (kind IN ('queue', 'name'))
);

-- Settings of the whole fleet that change at run time; null leaves a setting to each program's configuration.
CREATE TABLE {schema.}settings (
    one                             boolean NOT NULL DEFAULT true,
    promote_to_medium_after_seconds double precision,
    promote_to_high_after_seconds   double precision,
    CONSTRAINT settings_pkey PRIMARY KEY (one),
    CONSTRAINT settings_is_one_row CHECK (one),
    CONSTRAINT settings_thresholds_positive
        CHECK (promote_to_medium_after_seconds > 0 AND promote_to_high_after_seconds > 0)
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
-- ==== 0003 ====
-- True while a worker waits for a notification.
ALTER TABLE {schema.}workers ADD COLUMN asleep boolean NOT NULL DEFAULT false;

-- A commit that notifies takes a lock of the whole server, so eight busy producers would wait for each other: notify
-- only if somebody sleeps. Whoever falls asleep says so first, and then waits for those who may not have seen it
-- (worker/sleep.py). They see it if they look after they began to write, which a snapshot from before would prevent:
-- so those in a stricter isolation always notify.
-- It runs as its owner: a producer needs no right to see the workers. The schema is written into it, because whoever
-- inserts may have any search_path.
DO $migration$
BEGIN
    EXECUTE format($function$
        CREATE OR REPLACE FUNCTION %1$s.tasklib_wake() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
        BEGIN
            IF EXISTS (SELECT FROM %1$s.workers WHERE asleep)
               OR pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.<>) 'read committed' THEN
                PERFORM pg_catalog.pg_notify(pg_catalog.concat('tasklib_', TG_TABLE_SCHEMA), '');
            END IF;
            RETURN NULL;
        END
        $$
    $function$, (SELECT typnamespace::regnamespace FROM pg_type WHERE oid = pg_typeof(NULL::{schema.}tasks)));
END
$migration$;
-- ==== 0004 ====
-- Who may come in over HTTP. Of a token only its SHA-256 is kept: whoever reads this table can't use it as a key.
-- Rows are never deleted, so that a revoked token still has a name in the audit.
CREATE TABLE {schema.}api_tokens (
    id           uuid        NOT NULL DEFAULT {schema.}tasklib_new_id(),
    name         text        NOT NULL,
    prefix       text        COLLATE "C" NOT NULL,
    hash         bytea       NOT NULL,
    roles        text[]      NOT NULL,
    queues       text[],
    created_at   timestamptz NOT NULL DEFAULT now(),
    created_by   text        NOT NULL,
    expires_at   timestamptz,
    revoked_at   timestamptz,
    last_used_at timestamptz,
    CONSTRAINT api_tokens_pkey PRIMARY KEY (id),
    CONSTRAINT api_tokens_prefix_once UNIQUE (prefix),
    CONSTRAINT api_tokens_name_not_empty CHECK (name <> ''),
    CONSTRAINT api_tokens_hash_is_sha256 CHECK (length(hash) = 32),
    CONSTRAINT api_tokens_roles_known
        CHECK (cardinality(roles) > 0 AND roles <@ '{viewer,submitter,worker,operator,admin}'::text[]),
    CONSTRAINT api_tokens_queues_not_empty CHECK (cardinality(queues) > 0)
);

-- Who changed what, written by the statement that changed it.
CREATE TABLE {schema.}audit (
    id      bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    at      timestamptz NOT NULL DEFAULT now(),
    actor   text        NOT NULL,
    action  text        NOT NULL,
    target  text,
    details jsonb       NOT NULL DEFAULT '{}',
    CONSTRAINT audit_pkey PRIMARY KEY (id),
    CONSTRAINT audit_details_is_object CHECK (jsonb_typeof(details) = 'object')
);

-- What happened to this task, by whom?
CREATE INDEX audit_target ON {schema.}audit (target, id) WHERE target IS NOT NULL;

CREATE FUNCTION {schema.}tasklib_keep_audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit is only ever added to: % is refused', TG_OP
        USING ERRCODE = 'object_not_in_prerequisite_state';
END
$$;

CREATE TRIGGER audit_keep BEFORE UPDATE OR DELETE OR TRUNCATE ON {schema.}audit
    FOR EACH STATEMENT EXECUTE FUNCTION {schema.}tasklib_keep_audit();

-- Whose task it is: the id of the token it was submitted with; null if it didn't come over HTTP.
ALTER TABLE {schema.}tasks ADD COLUMN submitted_by text;

-- Somebody's own tasks, the newest first. Tasks that didn't come over HTTP are not in it, and pay nothing for it.
CREATE INDEX tasks_submitted_by ON {schema.}tasks (submitted_by, id) WHERE submitted_by IS NOT NULL;

-- The token a worker registered with; null if it came over PostgreSQL.
ALTER TABLE {schema.}workers ADD COLUMN token_id uuid;
-- ==== 0005 ====
-- What happened, as it is told: by workers every few seconds, by the statement itself where no worker is part of it.
-- Rows are only ever added, so nobody waits for anybody; the leader moves them into `tallies`.
CREATE TABLE {schema.}tally_deltas (
    at      timestamptz      NOT NULL DEFAULT now(),
    name    text             COLLATE "C" NOT NULL DEFAULT '',
    queue   text             COLLATE "C" NOT NULL DEFAULT '',
    level   text             COLLATE "C" NOT NULL DEFAULT '',
    outcome text             COLLATE "C" NOT NULL,
    reason  text             COLLATE "C" NOT NULL DEFAULT '',
    count   bigint           NOT NULL,
    seconds double precision NOT NULL DEFAULT 0,
    waited  double precision NOT NULL DEFAULT 0,
    buckets bigint[]         NOT NULL DEFAULT '{}',
    waits   bigint[]         NOT NULL DEFAULT '{}'
);

-- The same by time: spans of 60, 600 and 3600 seconds for charts, the old ones in longer spans and then forgotten.
-- Span 0 is all that ever was, without names and queues; with the deltas it is the exact total.
CREATE TABLE {schema.}tallies (
    span    integer          NOT NULL,
    start   timestamptz      NOT NULL,
    name    text             COLLATE "C" NOT NULL,
    queue   text             COLLATE "C" NOT NULL,
    level   text             COLLATE "C" NOT NULL,
    outcome text             COLLATE "C" NOT NULL,
    reason  text             COLLATE "C" NOT NULL,
    count   bigint           NOT NULL,
    seconds double precision NOT NULL,
    waited  double precision NOT NULL,
    buckets bigint[]         NOT NULL,
    waits   bigint[]         NOT NULL,
    CONSTRAINT tallies_pkey PRIMARY KEY (span, start, name, queue, level, outcome, reason)
) WITH (fillfactor = 70);

-- How deep each queue was at each level, at the leader's last look in each minute.
CREATE TABLE {schema.}depths (
    minute             timestamptz      NOT NULL,
    queue              text             COLLATE "C" NOT NULL,
    level              text             COLLATE "C" NOT NULL,
    depth              bigint           NOT NULL,
    capped             boolean          NOT NULL,
    oldest_age_seconds double precision NOT NULL,
    CONSTRAINT depths_pkey PRIMARY KEY (minute, queue, level)
);

-- The last flush of a worker's tallies that was counted: one whose answer was lost is sent again, and counts once.
ALTER TABLE {schema.}workers ADD COLUMN tallied bigint NOT NULL DEFAULT 0;

-- Two histograms in one.
CREATE FUNCTION {schema.}tasklib_added(one bigint[], other bigint[]) RETURNS bigint[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT COALESCE(array_agg(COALESCE(a, 0) + COALESCE(b, 0) ORDER BY place), '{}')
    FROM unnest(one, other) WITH ORDINALITY AS both_of (a, b, place)
$$;
-- ==== 0006 ====
-- What failed, was cancelled or given up, the newest first. Written only by the tasks it speaks of: one that completes
-- pays nothing for it.
CREATE INDEX tasks_set_aside ON {schema.}tasks (state, id) WHERE state IN ('failed', 'cancelled', 'dead_letter');
