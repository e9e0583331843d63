-- The schema of TaskLib. In this order: ids, tasks, workers, durable tasks, leadership, flows, schedules, pauses and
-- settings, limits, breakers, stats, replays, tokens and audit.
-- In each table but `tasks` the columns that always have a value come first, then those that may be null.

-- ---- ids ----

-- Which of the schemas that tasks are spread over this is. The migration replaces it where the configuration says so.
CREATE FUNCTION {schema.}tasklib_shard() RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT 0';

-- Ids sort by time (UUID version 7): 48 bits of milliseconds, the version, 12 bits of the microseconds within, the
-- variant, 10 bits of the shard, 52 bits of chance. The hexadecimal 800 is the variant. `tasks/ids.py` makes the same.
-- With RETURN the other function is bound now: the session that inserts may have any search_path.
CREATE FUNCTION {schema.}tasklib_new_id() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE RETURN (
  SELECT (lpad(to_hex(us / 1000), 12, '0') || '7' || lpad(to_hex((us % 1000) * 4096 / 1000), 3, '0')
          || to_hex(x'800'::integer | {schema.}tasklib_shard()) || right(gen_random_uuid()::text, 14))::uuid
  FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS us) AS clock
);

-- ---- tasks ----

-- What one column may be is checked by its domain: where the column is set, and nowhere else. PostgreSQL reads the text of
-- a table's own checks anew for each statement, which was most of what a single INSERT took, and asks all of them for each
-- version of a row. No domains for jsonb and arrays: many drivers write those only for a parameter whose type they know.
CREATE DOMAIN {schema.}task_state AS text COLLATE "C" CONSTRAINT tasks_state_known
    CHECK (VALUE IN ('pending', 'running', 'completed', 'failed', 'cancelled', 'dead_letter'));
CREATE DOMAIN {schema.}task_merge_while AS text COLLATE "C"
    CONSTRAINT tasks_merge_while_known CHECK (VALUE IN ('pending', 'unfinished'));
-- Not so large that counting on overflows: one such row would stop the batch it is part of.
CREATE DOMAIN {schema.}task_priority AS integer CONSTRAINT tasks_numbers_in_range CHECK (VALUE BETWEEN -10 AND 100);
CREATE DOMAIN {schema.}task_max_retries AS integer CONSTRAINT tasks_numbers_in_range CHECK (VALUE >= 0);
CREATE DOMAIN {schema.}task_count AS integer CONSTRAINT tasks_numbers_in_range CHECK (VALUE BETWEEN 0 AND 1000000000);
CREATE DOMAIN {schema.}task_timeout AS integer CONSTRAINT tasks_numbers_in_range CHECK (VALUE > 0);
CREATE DOMAIN {schema.}task_lease_token AS bigint
    CONSTRAINT tasks_numbers_in_range CHECK (VALUE BETWEEN 0 AND 1000000000000000);
-- Moments that every client can read and count with; no infinity.
CREATE DOMAIN {schema.}task_time AS timestamptz CONSTRAINT tasks_times_in_range
    CHECK (VALUE >= '0001-01-03 00:00:00+00' AND VALUE < '9999-12-30 00:00:00+00');

-- A row with nothing but a name is a complete task: every other column has a default or may be null.
-- Names and queues compare by bytes ("C"): it is faster, and the claim relies on it to hop from lane to lane.
-- The columns of indexes come first, those of a fixed length before all others: PostgreSQL compares them with each new
-- version of a row, and walks over all columns before one that it reads, unless they are always there and of a fixed
-- length.
CREATE TABLE {schema.}tasks (
    id                     uuid                      NOT NULL DEFAULT {schema.}tasklib_new_id(),
    scheduled_at           {schema.}task_time        NOT NULL DEFAULT now(),
    -- Grows with every claim. Each write of a worker carries it, so a worker that lost its lease changes nothing.
    lease_token            {schema.}task_lease_token NOT NULL DEFAULT 0,
    priority               {schema.}task_priority    NOT NULL DEFAULT 0,

    state                  {schema.}task_state       NOT NULL DEFAULT 'pending',
    queue                  text                      COLLATE "C" NOT NULL DEFAULT 'default',
    -- Empty: it waits together with tasks of all names. Its name, once it stood in the way of a worker that doesn't serve
    -- that name.
    lane                   text                      COLLATE "C" NOT NULL DEFAULT '',
    required_capabilities  text[]                    COLLATE "C" NOT NULL DEFAULT '{}',
    name                   text                      COLLATE "C" NOT NULL,

    locked_until           {schema.}task_time,
    completed_at           {schema.}task_time,
    started_at             {schema.}task_time,
    next_retry_at          {schema.}task_time,
    worker_id              text,

    created_at             {schema.}task_time        NOT NULL DEFAULT now(),
    max_retries            {schema.}task_max_retries NOT NULL DEFAULT 3,
    retry_count            {schema.}task_count       NOT NULL DEFAULT 0,
    crash_count            {schema.}task_count       NOT NULL DEFAULT 0,
    kwargs                 jsonb                     NOT NULL DEFAULT '{}',
    tags                   jsonb                     NOT NULL DEFAULT '{}',
    args                   jsonb                     NOT NULL DEFAULT '{}', -- in a flow: arguments that are results of other tasks

    cancel_requested_at    {schema.}task_time,
    timeout_seconds        {schema.}task_timeout,
    result                 jsonb,
    error                  text,
    progress               jsonb,
    history                jsonb,
    -- Of a durable task: the signals it was suspended for, an empty list if it sleeps; and how many were ever sent to it,
    -- by which a suspension notices one that it has not seen. Null for plain tasks.
    awaited_signals        text[]                    COLLATE "C",
    signals_sent           bigint,
    -- The lease token of the last attempt whose beginning was put on record, and whether that one must not be repeated.
    begun_token            bigint,
    at_most_once           boolean,
    idempotency_key        text,
    idempotency_expires_at {schema.}task_time,
    trace_context          jsonb,
    -- The id of the token the task was submitted with; null if it didn't come over HTTP.
    submitted_by           text,
    -- The schedule that the task is a run of, and the slot it runs for; a run that was asked for by hand has no slot.
    schedule               text                      COLLATE "C",
    slot                   {schema.}task_time,
    -- Of a task in a flow: the flow, the node it belongs to, the gate it waits at (it is not claimed before the gate
    -- opens), and the gates that count its end. All null for other tasks.
    flow                   uuid,
    node                   text                      COLLATE "C",
    waits_for              uuid,
    reports_to             uuid[],
    -- Submissions of this name with this key become one task, while it is not claimed yet or while it is not finished.
    merge_key              text                      COLLATE "C",
    merge_while            {schema.}task_merge_while,
    -- The version of its arguments, of a function that has versions: see tasks/versions.py.
    payload_version        smallint,
    -- The key that seals what the task holds; null for tasks that are not sealed.
    key_id                 text                      COLLATE "C",

    CONSTRAINT tasks_pkey PRIMARY KEY (id),
    CONSTRAINT tasks_name_not_empty CHECK (name <> ''),
    CONSTRAINT tasks_kwargs_is_object CHECK (kwargs @> '{}'),
    CONSTRAINT tasks_tags_is_object CHECK (tags @> '{}'),
    CONSTRAINT tasks_capabilities_is_list CHECK (array_ndims(required_capabilities) = 1),
    CONSTRAINT tasks_merge_key_complete CHECK ((merge_key IS NULL) = (merge_while IS NULL)),
    -- What each state has: an end in the terminal states, a lease while it runs and only then, a retry time if it failed.
    -- Short, as its text is read for each statement: the names of the terminal states, and no others, are below 'e'.
    CONSTRAINT tasks_state_fits
        CHECK ((completed_at IS NULL) = (state > 'e')
               AND (worker_id IS NOT NULL AND locked_until IS NOT NULL) = (state = 'running')
               AND (next_retry_at IS NOT NULL OR state <> 'failed'))
) WITH (
    -- Room on each page for new versions of its rows: claiming and completing then touch no other page.
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.05
);

-- The lanes: the claim hops from lane head to lane head and never reads tasks that are finished or not due. A lane holds
-- tasks of all names, or those of one name that were set apart (store/claim.py): the order is exact over any number of
-- names, and costs the same.
CREATE INDEX tasks_claimable ON {schema.}tasks
    (queue, lane, required_capabilities, priority, {due}, id)
    WHERE state IN ('pending', 'failed') AND waits_for IS NULL;

-- Tasks that wait at a gate: not in the lanes, so a claim doesn't see them. One that was cancelled there is still found
-- by its gate: if what failed is replayed, it waits again.
CREATE INDEX tasks_waiting ON {schema.}tasks (waits_for, id) WHERE waits_for IS NOT NULL;

-- Running tasks: a small index, and all that recovery has to look at.
CREATE INDEX tasks_running ON {schema.}tasks (locked_until) WHERE state = 'running';

-- The other indexes are partial: a plain task that completes is in none of them and pays nothing.
CREATE INDEX tasks_dead_letter ON {schema.}tasks (completed_at, id) WHERE state = 'dead_letter';

-- Tasks that failed, were cancelled or given up, the newest first.
CREATE INDEX tasks_set_aside ON {schema.}tasks (state, id) WHERE state IN ('failed', 'cancelled', 'dead_letter');

-- The tasks of one token, the newest first.
CREATE INDEX tasks_submitted_by ON {schema.}tasks (submitted_by, id) WHERE submitted_by IS NOT NULL;

CREATE UNIQUE INDEX tasks_idempotency ON {schema.}tasks (name, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
CREATE INDEX tasks_idempotency_expiry ON {schema.}tasks (idempotency_expires_at) WHERE idempotency_key IS NOT NULL;

-- The runs of one schedule; a slot has one task, ever. And those of them that are not finished.
CREATE UNIQUE INDEX tasks_slot ON {schema.}tasks (schedule, slot) WHERE schedule IS NOT NULL;
CREATE INDEX tasks_unfinished_run ON {schema.}tasks (schedule)
    WHERE schedule IS NOT NULL AND state IN ('pending', 'running', 'failed');

-- The tasks of one flow, by node and in the order of submission. Not those with ids
-- below that of the flow: they are found by their ids (sql/fragments/near_flow.sql), so that claiming and settling them
-- writes no entry here. A client makes the id of a flow after those of its tasks, so this index has rows that were
-- written by hand, some spawned tasks, and little else.
CREATE INDEX tasks_flow ON {schema.}tasks (flow, node, id) WHERE flow IS NOT NULL AND id >= flow;

-- One task for each merge key. A claim raises the lease token for good, so a task that was claimed once is never again in
-- this index as one that waits; and one that must be unique until it is finished is in it all that time. So no claim,
-- retry, release or rescue can collide. Only a replay brings a finished task back, and that clears the key.
CREATE UNIQUE INDEX tasks_merging ON {schema.}tasks (name, merge_key, merge_while)
    WHERE merge_key IS NOT NULL
      AND state IN ('pending', 'running', 'failed')
      AND (merge_while = 'unfinished' OR lease_token = 0);

-- The sealed tasks of one key, for rotation.
CREATE INDEX tasks_sealed ON {schema.}tasks (key_id, id) WHERE key_id IS NOT NULL;

-- A key is free again once its window has passed, for rows inserted by hand too.
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

-- What a claim says of a run of a schedule, of a task of a flow, or of one with a version, besides its trace. IMMUTABLE
-- because it is called in RETURNING, where Citus allows nothing else: all it uses depends on its arguments alone, for our
-- connections have one time zone.
CREATE FUNCTION {schema.}tasklib_carried(
    trace_context jsonb, schedule text, slot timestamptz, flow uuid, node text, reports_to uuid[], args jsonb, version smallint)
RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    -- Most tasks of flows: text takes less time than building jsonb.
    IF schedule IS NULL AND trace_context IS NULL AND version IS NULL THEN
        RETURN '{' || concat_ws(', ', '"tasklib_flow": "' || flow::text || '"', '"tasklib_node": ' || to_json(node)::text,
                                '"tasklib_reports_to": ["' || NULLIF(array_to_string(reports_to, '", "'), '') || '"]',
                                '"tasklib_results": ' || NULLIF(args, '{}')::text) || '}';
    END IF;
    RETURN COALESCE(trace_context, '{}') || jsonb_strip_nulls(jsonb_build_object(
        'tasklib_schedule', schedule, 'tasklib_slot', slot, 'tasklib_flow', flow, 'tasklib_node', node,
        'tasklib_reports_to', reports_to, 'tasklib_results', NULLIF(args, '{}'), 'tasklib_version', version));
END
$$;

-- ---- workers ----

-- One row for each start of a worker: an id is never used twice. Read it through the view `workers`, which says which
-- of them are alive: `reported_status` is what the worker or the leader last wrote, and may be long out of date.
CREATE TABLE {schema.}worker_registrations (
    id                        text             NOT NULL,
    reported_status           text             NOT NULL DEFAULT 'active',
    capabilities              text[]           NOT NULL DEFAULT '{}',
    capacity                  integer          NOT NULL DEFAULT 1,
    current_load              integer          NOT NULL DEFAULT 0,
    version                   text             NOT NULL DEFAULT '',
    host                      text             NOT NULL DEFAULT '',
    pid                       integer          NOT NULL DEFAULT 0,
    started_at                timestamptz      NOT NULL DEFAULT now(),
    last_heartbeat            timestamptz      NOT NULL DEFAULT now(),
    -- The worker's own setting: it gives its tasks up by itself before it has been silent for this long.
    heartbeat_timeout_seconds double precision NOT NULL DEFAULT 90,
    -- True while the worker waits for a notification.
    asleep                    boolean          NOT NULL DEFAULT false,
    -- The last flush of the worker's stats that was counted: one whose answer was lost is sent again, and counts once.
    counted                   bigint           NOT NULL DEFAULT 0,

    queues                    text[], -- null: any
    names                     text[]           DEFAULT '{}', -- null: any
    drain_requested_at        timestamptz,
    -- How many tasks it may have begun whose results are not stored yet; null: all it holds.
    may_begin                 integer,
    -- The channel on which a sleeping worker is woken; null: the one that all workers share.
    wake_channel              text,
    -- The token the worker registered with; null if it is connected to PostgreSQL itself.
    token_id                  uuid,
    tzdata                    text, -- the version of its time zones; null if it can't become the leader

    CONSTRAINT worker_registrations_pkey PRIMARY KEY (id),
    CONSTRAINT worker_registrations_status_known CHECK (reported_status IN ('active', 'draining', 'dead')),
    CONSTRAINT worker_registrations_load_not_negative CHECK (capacity >= 0 AND current_load >= 0),
    CONSTRAINT worker_registrations_timeout_in_range
        CHECK (heartbeat_timeout_seconds > 0 AND heartbeat_timeout_seconds <= 31536000000),
    CONSTRAINT worker_registrations_times_in_range
        CHECK (least(started_at, last_heartbeat, drain_requested_at) >= '0001-01-03 00:00:00+00'
               AND greatest(started_at, last_heartbeat, drain_requested_at) < '9999-12-30 00:00:00+00')
) WITH (fillfactor = 50);

-- The one rule of which worker is alive: a worker that has been silent for longer than its timeout is dead, whether or
-- not a leader has noticed. Every statement that shows or chooses workers reads this view.
CREATE VIEW {schema.}workers AS
SELECT id,
       CASE WHEN last_heartbeat < now() - make_interval(secs => heartbeat_timeout_seconds) THEN 'dead'
            ELSE reported_status END AS status,
       queues, names, capabilities, capacity, current_load, version, host, pid, started_at, last_heartbeat,
       heartbeat_timeout_seconds, drain_requested_at, asleep, wake_channel, token_id, counted, reported_status
FROM {schema.}worker_registrations;

-- A commit that notifies takes a lock of the whole server, so eight busy producers would wait for each other: notify
-- only if a worker sleeps. A worker that falls asleep says so first, and then waits for the transactions that may not
-- have seen it (backends/postgres/sleep.py). They see it if they look after they began to write, which a snapshot from
-- before would prevent: so transactions in a stricter isolation always wake all workers.
--
-- Only as many sleepers are woken as there are tasks for their slots, of those that serve the tasks. They are chosen by
-- chance, and nothing is written: a row locked until the caller's transaction ends would hold up other producers and the
-- worker's heartbeats. So two producers may choose the same sleeper; one that can't take all wakes others (pass_on.sql).
-- Workers whose heartbeat is late come last.
--
-- These functions run as their owner: a producer needs no right to see the workers. The schema is written into them,
-- because the session that inserts may have any search_path; for the same reason all they use is qualified.
DO $migration$
DECLARE
    place regnamespace := (SELECT typnamespace FROM pg_type WHERE oid = pg_typeof(NULL::{schema.}tasks));
BEGIN
    EXECUTE format($function$
        CREATE FUNCTION %1$s.tasklib_wake_all(message text DEFAULT '') RETURNS void LANGUAGE sql AS $$
            SELECT pg_catalog.pg_notify(pg_catalog.concat('tasklib_', n.nspname), $1)
            FROM pg_catalog.pg_type AS t
            JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) t.typnamespace
            WHERE t.oid OPERATOR(pg_catalog.=) pg_catalog.pg_typeof(NULL::%1$s.tasks)
        $$
    $function$, place);
    EXECUTE format($function$
        CREATE FUNCTION %1$s.tasklib_wake_for(queue text, name text, capabilities text[], tasks bigint,
                                              but text DEFAULT NULL)
        RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
        DECLARE
            sleeper record;
        BEGIN
            IF pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.<>) 'read committed' THEN
                PERFORM %1$s.tasklib_wake_all();
                RETURN;
            END IF;
            FOR sleeper IN
                SELECT worker.id, worker.wake_channel, worker.slots
                FROM (
                    SELECT w.id, w.wake_channel, w.queues, w.names, w.capabilities,
                           GREATEST(w.capacity OPERATOR(pg_catalog.-) w.current_load, 1) AS slots
                    FROM %1$s.worker_registrations AS w
                    WHERE w.asleep
                      AND w.reported_status OPERATOR(pg_catalog.=) 'active'
                      AND w.id IS DISTINCT FROM but
                    ORDER BY w.last_heartbeat OPERATOR(pg_catalog.<) (pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-)
                             pg_catalog.make_interval(secs => w.heartbeat_timeout_seconds OPERATOR(pg_catalog./) 2)),
                             pg_catalog.random()
                    OFFSET 0 -- before the conditions: the names of a worker may be many, and only those asked are read
                ) AS worker
                WHERE (worker.queues IS NULL OR $1 OPERATOR(pg_catalog.=) ANY (worker.queues))
                  AND (worker.names IS NULL OR $2 OPERATOR(pg_catalog.=) ANY (worker.names))
                  AND worker.capabilities OPERATOR(pg_catalog.@>) $3
                LIMIT tasks
            LOOP
                IF sleeper.wake_channel IS NULL THEN
                    PERFORM %1$s.tasklib_wake_all();
                ELSE
                    PERFORM pg_catalog.pg_notify(sleeper.wake_channel, sleeper.id);
                END IF;
                tasks := tasks OPERATOR(pg_catalog.-) sleeper.slots;
                EXIT WHEN tasks OPERATOR(pg_catalog.<=) 0;
            END LOOP;
        END
        $$
    $function$, place);
    -- Tasks of many kinds, or of many names, are for all workers: that costs less than choosing.
    EXECUTE format($function$
        CREATE FUNCTION %1$s.tasklib_wake() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
        DECLARE
            kinds integer := 0;
            kind record;
        BEGIN
            IF NOT EXISTS (SELECT FROM %1$s.worker_registrations AS w WHERE w.asleep)
               AND pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.=) 'read committed' THEN
                RETURN NULL;
            END IF;
            FOR kind IN
                SELECT i.queue, i.name, i.required_capabilities, pg_catalog.count(*) AS tasks
                FROM inserted AS i
                WHERE i.waits_for IS NULL
                GROUP BY 1, 2, 3
                LIMIT 21
            LOOP
                kinds := kinds OPERATOR(pg_catalog.+) 1;
                IF kinds OPERATOR(pg_catalog.>) 20 THEN
                    PERFORM %1$s.tasklib_wake_all();
                ELSE
                    PERFORM %1$s.tasklib_wake_for(kind.queue, kind.name, kind.required_capabilities, kind.tasks);
                END IF;
            END LOOP;
            RETURN NULL;
        END
        $$
    $function$, place);
END
$migration$;

CREATE TRIGGER tasks_wake AFTER INSERT ON {schema.}tasks
    REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION {schema.}tasklib_wake();

-- ---- durable tasks ----

-- What durable tasks have on record: the results of their steps, the moments until which they sleep. Written once and
-- never changed; a later run of the function reads them instead of doing the same again.
CREATE TABLE {schema.}steps (
    task        uuid        NOT NULL,
    kind        text        COLLATE "C" NOT NULL DEFAULT 'step',
    name        text        COLLATE "C" NOT NULL,
    result      jsonb       NOT NULL, -- {"value": ...}
    token       bigint      NOT NULL, -- the lease token of the attempt that recorded it
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT steps_pkey PRIMARY KEY (task, kind, name),
    CONSTRAINT steps_kind_known CHECK (kind IN ('step', 'sleep', 'signal', 'timer', 'patch', 'deadline', 'children', 'gather', 'approval')),
    CONSTRAINT steps_result_is_object CHECK (jsonb_typeof(result) = 'object')
);
-- The approvals that wait for an answer, the oldest first.
CREATE INDEX steps_open_approvals ON {schema.}steps (recorded_at, task, name) WHERE kind = 'approval' AND NOT result ? 'closed';

-- Signals sent to tasks, in the order of `seq`. They wait here until the task consumes them, and stay until it is
-- deleted, so that one that is sent again under the same key is known.
CREATE TABLE {schema.}signals (
    task        uuid        NOT NULL,
    seq         bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    name        text        COLLATE "C" NOT NULL,
    payload     jsonb       NOT NULL DEFAULT 'null',
    sent_at     timestamptz NOT NULL DEFAULT clock_timestamp(),

    key         text        COLLATE "C",
    sent_by     text,
    consumed_at timestamptz,

    CONSTRAINT signals_pkey PRIMARY KEY (task, seq),
    CONSTRAINT signals_key_once UNIQUE (task, key),
    CONSTRAINT signals_name_not_empty CHECK (name <> '')
);
CREATE INDEX signals_unconsumed ON {schema.}signals (task, name, seq) WHERE consumed_at IS NULL;

-- Send a signal to a task: SELECT tasklib_signal('018f...', 'approved', '{"by": "ann"}');
-- Returns 'sent', 'known' (one with this key was sent before), 'finished' (the task has ended), 'sealed' (the task is
-- sealed with another key than `sealed_with`, so its signals have to be), or null: no such task.
-- The task's row is locked before anything is decided. A suspension locks it too, so one of the two comes first: the
-- suspension finds `signals_sent` changed, or the signal finds the task suspended and makes it due.
DO $migration$
BEGIN
    EXECUTE format($function$
        CREATE FUNCTION %1$s.tasklib_signal(task_id uuid, signal text, payload jsonb DEFAULT 'null',
                                            key text DEFAULT NULL, sent_by text DEFAULT current_user,
                                            sealed_with text DEFAULT NULL)
        RETURNS text LANGUAGE sql VOLATILE AS $$
            WITH target AS (
                SELECT task.id, task.state IN ('pending', 'running', 'failed') AS is_open,
                       task.key_id IS NOT DISTINCT FROM $6 AS fits,
                       task.state = 'pending' AND $2 = ANY (task.awaited_signals)
                           AND COALESCE(task.next_retry_at, task.scheduled_at) > now() AS waits
                FROM %1$s.tasks AS task
                WHERE task.id = $1
                FOR NO KEY UPDATE
            ),
            sent AS (
                INSERT INTO %1$s.signals (task, name, payload, key, sent_by)
                SELECT id, $2, COALESCE($3, 'null'), $4, $5 FROM target WHERE is_open AND fits
                ON CONFLICT (task, key) DO NOTHING
                RETURNING task
            ),
            told AS (
                UPDATE %1$s.tasks AS task
                SET signals_sent = COALESCE(task.signals_sent, 0) + 1,
                    scheduled_at = CASE WHEN waits THEN now() ELSE task.scheduled_at END
                FROM target
                WHERE task.id = target.id AND EXISTS (SELECT FROM sent)
                RETURNING CASE WHEN waits THEN
                    %1$s.tasklib_wake_for(task.queue, task.name, task.required_capabilities, 1) END
            )
            SELECT CASE WHEN NOT is_open THEN 'finished' WHEN NOT fits THEN 'sealed'
                        WHEN EXISTS (SELECT FROM told) THEN 'sent' ELSE 'known' END
            FROM target
        $$
    $function$, (SELECT typnamespace::regnamespace FROM pg_type WHERE oid = pg_typeof(NULL::{schema.}tasks)));
END
$migration$;

-- Answer an approval that a task asks for: SELECT tasklib_answer('018f...', 'pay-out', true, 'fine with me');
-- Returns 'sent', 'closed' (it was answered before, or its time is over), 'not_asked', 'finished' (the task has ended),
-- 'sealed' (the answer has to be sealed like the task: `sealed` is all of it), or null: no such task. `question`: only if it is still the one with this token, by which a reader knew it.
-- The task's row is locked first. Whatever closes a question holds a lock on it too, so the next statement sees that.
DO $migration$
BEGIN
    EXECUTE format($function$
        CREATE FUNCTION %1$s.tasklib_answer(task_id uuid, approval text, approved boolean, comment text DEFAULT '',
                                            form jsonb DEFAULT NULL, sent_by text DEFAULT current_user,
                                            question bigint DEFAULT NULL, sealed jsonb DEFAULT NULL,
                                            sealed_with text DEFAULT NULL)
        RETURNS text LANGUAGE plpgsql VOLATILE AS $$
        DECLARE
            asked record;
            outcome text;
        BEGIN
            PERFORM FROM %1$s.tasks WHERE id = task_id FOR NO KEY UPDATE;
            IF NOT FOUND THEN
                RETURN NULL;
            END IF;
            SELECT step.token, step.result ? 'closed' AS is_closed INTO asked
            FROM %1$s.steps AS step
            WHERE step.task = task_id AND step.kind = 'approval' AND step.name = approval;
            IF NOT FOUND THEN
                RETURN 'not_asked';
            ELSIF asked.is_closed OR asked.token <> COALESCE(question, asked.token) THEN
                RETURN 'closed';
            END IF;
            -- One answer to each question. The same name asked again, by a task that began anew, has another token.
            outcome := %1$s.tasklib_signal(
                task_id, 'approval:' || approval,
                COALESCE(sealed, jsonb_build_object('approved', approved, 'comment', comment, 'form', form, 'by', sent_by)),
                'approval:' || approval || ':' || asked.token, sent_by, sealed_with);
            RETURN CASE outcome WHEN 'known' THEN 'closed' ELSE outcome END;
        END
        $$
    $function$, (SELECT typnamespace::regnamespace FROM pg_type WHERE oid = pg_typeof(NULL::{schema.}tasks)));
END
$migration$;

-- Steps and signals are deleted with their tasks, by whatever statement deletes those.
CREATE FUNCTION {schema.}tasklib_forget_steps() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    ids uuid[] := ARRAY(SELECT id FROM gone); -- which Citus can't join
BEGIN
    EXECUTE format('DELETE FROM %1$I.steps WHERE task = ANY ($1)', TG_TABLE_SCHEMA) USING ids;
    EXECUTE format('DELETE FROM %1$I.signals WHERE task = ANY ($1)', TG_TABLE_SCHEMA) USING ids;
    RETURN NULL;
END
$$;

CREATE TRIGGER tasks_forget_steps AFTER DELETE ON {schema.}tasks
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION {schema.}tasklib_forget_steps();

-- ---- sizes ----

-- Long values are compressed by lz4 where the server was built with it: several times faster than pglz, the default.
DO $migration$
DECLARE
    place record;
BEGIN
    IF 'lz4' = ANY (SELECT unnest(enumvals) FROM pg_settings WHERE name = 'default_toast_compression') THEN
        FOR place IN
            SELECT attrelid::regclass AS relation, attname AS name
            FROM pg_type
            JOIN pg_attribute ON attrelid = typrelid
            WHERE (pg_type.oid = pg_typeof(NULL::{schema.}tasks)
                   AND attname IN ('kwargs', 'result', 'error', 'history', 'progress'))
               OR (pg_type.oid = pg_typeof(NULL::{schema.}steps) AND attname = 'result')
               OR (pg_type.oid = pg_typeof(NULL::{schema.}signals) AND attname = 'payload')
        LOOP
            EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET COMPRESSION lz4', place.relation, place.name);
        END LOOP;
    END IF;
END
$migration$;

-- ---- leadership ----

-- One row: which process leads, in which term, until when. The term grows with every change of hands.
CREATE TABLE {schema.}leadership (
    one        boolean     NOT NULL DEFAULT true,
    holder     text        NOT NULL,
    term       bigint      NOT NULL DEFAULT 1,
    expires_at timestamptz NOT NULL,
    CONSTRAINT leadership_pkey PRIMARY KEY (one),
    CONSTRAINT leadership_is_one_row CHECK (one)
) WITH (fillfactor = 50);

-- The figures that the leader counted last: metrics and dashboard read them instead of counting tasks.
CREATE TABLE {schema.}snapshots (
    one      boolean     NOT NULL DEFAULT true,
    taken_at timestamptz NOT NULL,
    figures  jsonb       NOT NULL,
    CONSTRAINT snapshots_pkey PRIMARY KEY (one),
    CONSTRAINT snapshots_is_one_row CHECK (one)
);

-- ---- flows ----

-- A flow: tasks that wait for each other. Submitted as a whole, kept and deleted as a whole.
CREATE TABLE {schema.}flows (
    id                  uuid        NOT NULL DEFAULT {schema.}tasklib_new_id(),
    name                text        COLLATE "C" NOT NULL,
    created_at          timestamptz NOT NULL DEFAULT now(),

    cancel_requested_at timestamptz,
    finished_at         timestamptz, -- when the last of its tasks ended
    submitted_by        text, -- as in `tasks`
    parent              uuid, -- the durable task that waits for it
    first_task          uuid, -- none of its tasks has a lower id; null if that is not known

    CONSTRAINT flows_pkey PRIMARY KEY (id),
    CONSTRAINT flows_name_not_empty CHECK (name <> ''),
    CONSTRAINT flows_times_in_range
        CHECK (least(created_at, cancel_requested_at, finished_at) >= '0001-01-03 00:00:00+00'
               AND greatest(created_at, cancel_requested_at, finished_at) < '9999-12-30 00:00:00+00')
);
CREATE INDEX flows_unfinished ON {schema.}flows (id) WHERE finished_at IS NULL;
-- Flows whose tasks are being cancelled.
CREATE INDEX flows_cancelling ON {schema.}flows (id) WHERE cancel_requested_at IS NOT NULL AND finished_at IS NULL;
CREATE INDEX flows_finished ON {schema.}flows (finished_at) WHERE finished_at IS NOT NULL;

-- A gate: some tasks report their end to it, others wait for it. One gate serves all tasks that wait for the same
-- tasks, so 1 -> 100,000 -> 1 has two gates. It opens when its policy is satisfied, or fails when it can't be any more;
-- then the waiting tasks are cancelled. Each flow has one gate of the kind 'flow', which all its tasks report to. One
-- that a durable task waits for may have one of the kind 'parent', which that task reports to: if it fails, the flow is
-- cancelled.
CREATE TABLE {schema.}gates (
    id        uuid        NOT NULL DEFAULT {schema.}tasklib_new_id(),
    flow      uuid        NOT NULL,
    kind      text        NOT NULL DEFAULT 'join',
    policy    jsonb       NOT NULL DEFAULT '{"kind": "all"}',
    nodes     text[]      COLLATE "C" NOT NULL DEFAULT '{}', -- whose tasks report to it; for the kind 'flow': none
    waiters   text[]      COLLATE "C" NOT NULL DEFAULT '{}', -- whose tasks wait for it, or waited
    expected  bigint      NOT NULL, -- how many tasks report to it
    sealed    boolean     NOT NULL DEFAULT true, -- false while a running task may add children: it can't open
    completed bigint      NOT NULL DEFAULT 0, -- how many have completed, as far as arrivals were counted
    failed    bigint      NOT NULL DEFAULT 0, -- how many ended otherwise
    excused   bigint      NOT NULL DEFAULT 0, -- how many of these belong to optional nodes
    released  boolean     NOT NULL DEFAULT false, -- true when no task waits for it any more

    opened_at timestamptz,
    failed_at timestamptz,
    culprit   uuid, -- the first task whose end made it fail

    CONSTRAINT gates_pkey PRIMARY KEY (id),
    CONSTRAINT gates_policy_is_object CHECK (jsonb_typeof(policy) = 'object'),
    CONSTRAINT gates_expected_not_negative CHECK (expected >= 0),
    CONSTRAINT gates_decided_once CHECK (opened_at IS NULL OR failed_at IS NULL)
) WITH (fillfactor = 50);
CREATE INDEX gates_flow ON {schema.}gates (flow, kind);
-- Gates that are decided but have tasks waiting for them: a worker died before it had released them all.
CREATE INDEX gates_unreleased ON {schema.}gates (id)
    WHERE NOT released AND (opened_at IS NOT NULL OR failed_at IS NOT NULL);

-- Tasks that ended, for each gate they report to: one row for each gate, node and statement. Rows are only ever added,
-- so settling workers never wait for each other; they are counted into the gate right after (sql/flows/fold.sql).
-- A task that is replayed takes its report back: its counts are negative. Tasks that a running task spawns raise what
-- the gate expects. A row without counts asks for a look at the gate. They are counted in the order of their ids.
CREATE TABLE {schema.}arrivals (
    id        bigint  NOT NULL GENERATED ALWAYS AS IDENTITY,
    gate      uuid    NOT NULL,
    completed bigint  NOT NULL DEFAULT 0,
    failed    bigint  NOT NULL DEFAULT 0,

    node      text    COLLATE "C",
    culprit   uuid, -- one of those that failed
    expected  bigint, -- how many tasks were spawned that report to the gate

    CONSTRAINT arrivals_pkey PRIMARY KEY (id)
) WITH (
    -- Rows live for milliseconds.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000
);
CREATE INDEX arrivals_gate ON {schema.}arrivals (gate, id);

-- ---- schedules ----

-- Schedules: tasks that are submitted by themselves. Code and operators write the same rows, and any leader fires any of
-- them: a row has all that its tasks need. A slot is one instant of a schedule; `next_slot` is the first one that is
-- not decided yet.
CREATE TABLE {schema.}schedules (
    name         text        COLLATE "C" NOT NULL,
    task         text        COLLATE "C" NOT NULL,
    spec         jsonb       NOT NULL, -- the rule and the policies, as schedules/schedule.py stores them
    template     jsonb       NOT NULL, -- what each task is submitted with: queue, kwargs, priority, ...
    source       text        NOT NULL DEFAULT 'api',
    revision     bigint      NOT NULL DEFAULT 1, -- grows with every change but firing
    fired        bigint      NOT NULL DEFAULT 0,
    skipped      bigint      NOT NULL DEFAULT 0,
    created_at   timestamptz NOT NULL DEFAULT now(),
    changed_at   timestamptz NOT NULL DEFAULT now(),

    next_slot    timestamptz,
    last_slot    timestamptz, -- the newest one that was fired or skipped
    waiting_slot timestamptz, -- one that waits until an earlier run is finished
    last_task    uuid,
    paused_at    timestamptz,
    paused_by    text,
    pause_note   text,
    resumed_at   timestamptz,
    retired_at   timestamptz, -- when it was found to have left the code
    module       text, -- of a schedule in code: where its function is defined
    deployed_at  timestamptz, -- of a schedule in code: the stamp of the deploy that wrote it last

    CONSTRAINT schedules_pkey PRIMARY KEY (name),
    CONSTRAINT schedules_name_not_empty CHECK (name <> ''),
    CONSTRAINT schedules_task_not_empty CHECK (task <> ''),
    CONSTRAINT schedules_source_known CHECK (source IN ('code', 'api')),
    CONSTRAINT schedules_spec_is_object CHECK (jsonb_typeof(spec) = 'object'),
    CONSTRAINT schedules_template_is_object CHECK (jsonb_typeof(template) = 'object'),
    CONSTRAINT schedules_times_in_range
        CHECK (least(created_at, changed_at, next_slot, last_slot, waiting_slot, paused_at, resumed_at, retired_at,
                     deployed_at) >= '0001-01-03 00:00:00+00'
               AND greatest(created_at, changed_at, next_slot, last_slot, waiting_slot, paused_at, resumed_at,
                            retired_at, deployed_at) < '9999-12-30 00:00:00+00')
) WITH (fillfactor = 50);

-- The leader looks at the front of these, however many schedules there are.
CREATE INDEX schedules_next ON {schema.}schedules (next_slot)
    WHERE paused_at IS NULL AND retired_at IS NULL AND next_slot IS NOT NULL;
CREATE INDEX schedules_waiting ON {schema.}schedules (waiting_slot)
    WHERE paused_at IS NULL AND retired_at IS NULL AND waiting_slot IS NOT NULL;
CREATE INDEX schedules_paused ON {schema.}schedules (name) WHERE paused_at IS NOT NULL;

-- Slots that were not run, and why. Neighbours that were skipped for the same reason are one row.
CREATE TABLE {schema.}schedule_skips (
    schedule   text        COLLATE "C" NOT NULL,
    first_slot timestamptz NOT NULL,
    last_slot  timestamptz NOT NULL,
    reason     text        NOT NULL,
    count      bigint      NOT NULL,
    at         timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT schedule_skips_pkey PRIMARY KEY (schedule, last_slot),
    CONSTRAINT schedule_skips_in_order CHECK (first_slot <= last_slot AND count > 0)
);

-- ---- pauses and settings ----

-- Queues and names whose tasks are not claimed for now. Those with limits (`limited_`), whose tasks are claimed by
-- another statement. And names whose breaker is open, or lets only its probes pass.
CREATE TABLE {schema.}pauses (
    kind      text        NOT NULL,
    value     text        COLLATE "C" NOT NULL,
    paused_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pauses_pkey PRIMARY KEY (kind, value),
    CONSTRAINT pauses_kind_known CHECK (kind IN ('queue', 'name', 'limited_queue', 'limited_name', 'open_breaker', 'probing_breaker')),
    CONSTRAINT pauses_time_in_range
        CHECK (paused_at >= '0001-01-03 00:00:00+00' AND paused_at < '9999-12-30 00:00:00+00')
);

-- What may wait in a queue ('queue:mail') or of a name ('name:send_email') before submissions are refused: by programs
-- that ask for it, by the server, and in SQL by tasklib_has_room.
CREATE TABLE {schema.}backpressure (
    subject     text        COLLATE "C" NOT NULL,
    changed_at  timestamptz NOT NULL DEFAULT now(),
    max_wait    double precision,
    max_pending bigint,
    CONSTRAINT backpressure_pkey PRIMARY KEY (subject),
    CONSTRAINT backpressure_subject_known CHECK (split_part(subject, ':', 1) IN ('queue', 'name') AND subject LIKE '%:_%'),
    CONSTRAINT backpressure_in_range CHECK (max_wait > 0 AND max_wait <= 2147483647 AND max_pending > 0)
);

-- Searches that people keep, for all who use this database.
CREATE TABLE {schema.}saved_searches (
    name       text        COLLATE "C" NOT NULL,
    search     text        NOT NULL,
    saved_by   text        NOT NULL,
    saved_at   timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT saved_searches_pkey PRIMARY KEY (name),
    CONSTRAINT saved_searches_short CHECK (length(name) BETWEEN 1 AND 100 AND length(search) <= 2000)
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

-- The priority that a task has after waiting since `due`: low counts as medium, then any as high.
CREATE FUNCTION {schema.}tasklib_effective_priority(
    priority integer, due timestamptz, medium_after double precision, high_after double precision, moment timestamptz)
RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN due <= moment - make_interval(secs => high_after + CASE WHEN priority < 0 THEN medium_after ELSE 0 END)
            THEN greatest(priority, 100)
        WHEN due <= moment - make_interval(secs => medium_after) THEN greatest(priority, 0)
        ELSE priority END
$$;

-- The same of a row, for a SELECT of your own: tasklib_effective_priority(tasks). A task that doesn't wait has its own
-- priority.
CREATE FUNCTION {schema.}tasklib_effective_priority(task {schema.}tasks) RETURNS integer LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN task.state IN ('pending', 'failed') THEN {schema.}tasklib_effective_priority(
        task.priority, COALESCE(task.next_retry_at, task.scheduled_at),
        COALESCE(settings.promote_to_medium_after_seconds, 600),
        COALESCE(settings.promote_to_high_after_seconds, 1200), now())
    ELSE task.priority END
    FROM {schema.}settings
$$;

-- ---- limits ----

-- Limits on what runs at a time or begins within a time, and settings of queues and shares. A limit is named by what it
-- bounds: 'queue:mail', 'name:mail.send', 'share:acme', 'serial:ledger' (the serial keys of a queue), or freely
-- ('stripe') for functions that name it. 'stripe:acme' goes before 'stripe' for the key 'acme'. A row without bounds
-- limits nothing; it keeps what an operator said of a limit that the code declares.
CREATE TABLE {schema.}limits (
    name        text        COLLATE "C" NOT NULL,
    source      text        NOT NULL DEFAULT 'api', -- 'code' until an operator changes it
    changed_at  timestamptz NOT NULL DEFAULT now(),

    max_running integer,
    rate        double precision, -- so many starts
    per         double precision, -- in so many seconds
    burst       integer, -- and so many at once
    serial      text, -- one at a time, in order; one that failed holds the others until it is finished, or steps aside
    weight      integer, -- of a share: how many tasks it gets in its turn
    may_burst   boolean, -- of a share: whether it may run more than `max_running` in slots that no other share wants
    declared    jsonb, -- what the code says

    CONSTRAINT limits_pkey PRIMARY KEY (name),
    CONSTRAINT limits_name_plain CHECK (name <> '' AND name !~ '[\x01-\x1f]'),
    CONSTRAINT limits_source_known CHECK (source IN ('code', 'api')),
    CONSTRAINT limits_serial_known CHECK (serial IN ('hold', 'aside')),
    CONSTRAINT limits_in_range CHECK (max_running >= 0 AND weight BETWEEN 1 AND 1000000),
    CONSTRAINT limits_rate_whole
        CHECK ((rate IS NULL) = (per IS NULL) AND (rate IS NULL) = (burst IS NULL)
               AND rate > 0 AND rate <= 1000000000 AND per > 0 AND per <= 31536000000 AND burst >= 1)
) WITH (fillfactor = 50);

-- How far a rate is used up, for each key of its limit: tokens gather from `empty_at` on. And until when nothing begins,
-- because a task said that it was throttled.
CREATE TABLE {schema.}limit_states (
    limit_name    text        COLLATE "C" NOT NULL,
    key           text        COLLATE "C" NOT NULL DEFAULT '',
    empty_at      timestamptz NOT NULL DEFAULT '-infinity',
    blocked_until timestamptz,
    CONSTRAINT limit_states_pkey PRIMARY KEY (limit_name, key)
) WITH (fillfactor = 50);

-- The limits that functions are declared with, so that their tasks are behind them wherever they were submitted.
CREATE TABLE {schema.}limited_names (
    name text  COLLATE "C" NOT NULL,
    uses jsonb NOT NULL, -- [{"limit": "stripe", "key": "account", "cost": 1}]; the key is the name of an argument
    CONSTRAINT limited_names_pkey PRIMARY KEY (name),
    CONSTRAINT limited_names_uses_is_list CHECK (jsonb_typeof(uses) = 'array')
);

-- The places that tasks hold in their limits. One counts only as long as its task runs with this token (or, where
-- `held`, waits for its retry): so nothing has to be given back after a crash, and no counter can drift.
CREATE TABLE {schema.}places (
    task       uuid    NOT NULL,
    limit_name text    COLLATE "C" NOT NULL,
    key        text    COLLATE "C" NOT NULL,
    token      bigint  NOT NULL,
    held       boolean NOT NULL DEFAULT false,
    block      integer NOT NULL DEFAULT 0, -- which `with limit(...)` of the attempt took it; 0: the claim
    CONSTRAINT places_pkey PRIMARY KEY (task, limit_name, key, block)
) WITH (
    -- Rows live as long as attempts.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000
);
CREATE INDEX places_limit ON {schema.}places (limit_name, key);

-- A place that is free again may be of use to a worker that sleeps. It runs as its owner, as tasklib_wake does.
DO $migration$
BEGIN
    EXECUTE format($function$
        CREATE FUNCTION %1$s.tasklib_wake_for_place() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
        BEGIN
            IF EXISTS (SELECT FROM %1$s.worker_registrations WHERE asleep)
               OR pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.<>) 'read committed' THEN
                PERFORM %1$s.tasklib_wake_all();
            END IF;
            RETURN NULL;
        END
        $$
    $function$, (SELECT typnamespace::regnamespace FROM pg_type WHERE oid = pg_typeof(NULL::{schema.}tasks)));
END
$migration$;

CREATE TRIGGER places_wake AFTER DELETE ON {schema.}places
    FOR EACH ROW EXECUTE FUNCTION {schema.}tasklib_wake_for_place();

-- A lane that begins with E'\x01' holds tasks behind limits. What limits them is written in it, each part after an
-- E'\x01': 'k' and a serial key, 's' and a share, 'l', a limit, E'\x02' and a key (and, if it isn't 1, E'\x02' and a cost).

-- The key of a limit as a lane holds it: without control characters, and of a bounded length.
CREATE FUNCTION {schema.}tasklib_lane_key(value text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN octet_length(value) <= 200 AND value !~ '[\x01-\x1f]' THEN value
                ELSE 'md5-' || md5(value) END
$$;

-- The lane that a task belongs in: as it is, and behind all limits of its name.
CREATE FUNCTION {schema.}tasklib_lane(name text, lane text, kwargs jsonb) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN named.parts IS NULL THEN $2
                -- A serial key comes first.
                WHEN named.parts LIKE E'\x01k%' THEN named.parts || behind
                ELSE behind || named.parts END
    FROM (
        SELECT string_agg(part, '' ORDER BY part) AS parts
        FROM (
            SELECT CASE WHEN use ? 'serial' THEN E'\x01k' || given
                        WHEN use ? 'share' THEN E'\x01s' || given
                        ELSE concat(E'\x01l', use ->> 'limit', E'\x02', given,
                                    CASE WHEN use ->> 'cost' <> '1' THEN E'\x02' || (use ->> 'cost') END) END AS part,
                   CASE WHEN use ? 'serial' THEN E'\x01k' WHEN use ? 'share' THEN E'\x01s'
                        ELSE concat(E'\x01l', use ->> 'limit', E'\x02') END AS known_by
            FROM {schema.}limited_names AS limited
            CROSS JOIN LATERAL jsonb_array_elements(limited.uses) AS use
            CROSS JOIN LATERAL (
                SELECT {schema.}tasklib_lane_key(
                    $3 ->> COALESCE(use ->> 'key', use ->> 'serial', use ->> 'share')) AS given
            ) AS argument
            WHERE limited.name = $1
            UNION
            SELECT concat(E'\x01l', limits.name, E'\x02'), concat(E'\x01l', limits.name, E'\x02')
            FROM {schema.}limits
            WHERE limits.name = 'name:' || $1
              AND COALESCE(max_running, rate) IS NOT NULL
        ) AS use
        WHERE position(known_by IN $2) = 0
    ) AS named
    CROSS JOIN LATERAL (SELECT CASE WHEN $2 COLLATE "C" < E'\x02' THEN $2 ELSE '' END AS behind) AS known
$$;

-- Queues and names with limits are marked in `pauses`, which every claim reads: only tasklib_admit takes their tasks.
-- What runs at that moment is counted, too; but for a claim that is under way. The triggers say of which table they are,
-- whose name on Citus has a number behind it. It runs as its owner: a worker stores the
-- limits of its functions, but has no say over pauses.
CREATE FUNCTION {schema.}tasklib_mark_limited() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    changed text := CASE WHEN TG_OP = 'DELETE' THEN OLD.name ELSE NEW.name END;
    subject text := CASE WHEN TG_ARGV[0] = 'names' THEN 'name' ELSE split_part(changed, ':', 1) END;
    thing text := CASE WHEN TG_ARGV[0] = 'names' THEN changed
                       ELSE substr(changed, length(subject) + 2) END;
    is_limited boolean;
BEGIN
    EXECUTE format('SELECT pg_notify(%L, '''')', 'tasklib_' || TG_TABLE_SCHEMA);
    IF subject NOT IN ('queue', 'name') OR thing = '' THEN
        RETURN NULL;
    END IF;
    EXECUTE format(
        'SELECT EXISTS (SELECT FROM %1$I.limits WHERE name = $1 || '':'' || $2
                        AND (COALESCE(max_running, rate) IS NOT NULL OR serial IS NOT NULL))
             OR $1 = ''name'' AND EXISTS (SELECT FROM %1$I.limited_names
                                          WHERE name = $2 AND jsonb_array_length(uses) > 0)', TG_TABLE_SCHEMA)
    INTO is_limited USING subject, thing;
    IF is_limited THEN
        EXECUTE format('INSERT INTO %1$I.pauses (kind, value) VALUES (''limited_'' || $1, $2)
                        ON CONFLICT DO NOTHING', TG_TABLE_SCHEMA)
        USING subject, thing;
        IF TG_ARGV[0] = 'limits' THEN
            EXECUTE format('INSERT INTO %1$I.places (task, limit_name, key, token, held)
                            SELECT id, $3, '''', lease_token, $4 IS NOT DISTINCT FROM ''hold'' FROM %1$I.tasks
                            WHERE state = ''running'' AND CASE $1 WHEN ''queue'' THEN queue ELSE name END = $2
                            ON CONFLICT DO NOTHING', TG_TABLE_SCHEMA)
            USING subject, thing, changed, to_jsonb(NEW) ->> 'serial';
        END IF;
    ELSE
        EXECUTE format('DELETE FROM %1$I.pauses WHERE kind = ''limited_'' || $1 AND value = $2', TG_TABLE_SCHEMA)
        USING subject, thing;
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER limits_marked AFTER INSERT OR UPDATE OR DELETE ON {schema.}limits
    FOR EACH ROW EXECUTE FUNCTION {schema.}tasklib_mark_limited('limits');
CREATE TRIGGER limited_names_marked AFTER INSERT OR UPDATE OR DELETE ON {schema.}limited_names
    FOR EACH ROW EXECUTE FUNCTION {schema.}tasklib_mark_limited('names');

-- The first waiting task of each kind (lane, required capabilities, priority) in these lanes of a queue, one look at the
-- index each; `until` null: up to the end of the queue.
CREATE FUNCTION {schema.}tasklib_heads(of_queue text, since text, until text)
RETURNS TABLE (lane text, required_capabilities text[], priority integer, due timestamptz, id uuid)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH RECURSIVE heads AS (
        -- The end is compared with the one row that is found: as a condition of the scan it would let it pass all lanes.
        SELECT first.*
        FROM (
            SELECT w.lane, w.required_capabilities, w.priority, {due} AS due, w.id
            FROM {schema.}tasks AS w
            WHERE w.state IN ('pending', 'failed') AND w.waits_for IS NULL
              AND w.queue = of_queue AND w.lane >= since
            ORDER BY w.queue, w.lane, w.required_capabilities, w.priority, {due}, w.id
            LIMIT 1
        ) AS first
        WHERE until IS NULL OR first.lane < until
        UNION ALL
        SELECT following.*
        FROM heads
        CROSS JOIN LATERAL (
            SELECT w.lane, w.required_capabilities, w.priority, {due} AS due, w.id
            FROM {schema.}tasks AS w
            WHERE w.state IN ('pending', 'failed') AND w.waits_for IS NULL
              -- Without the queue in the row: beside w.queue = it would be no place to begin the scan at.
              AND w.queue = of_queue
              AND (w.lane, w.required_capabilities, w.priority)
                  > (heads.lane, heads.required_capabilities, heads.priority)
            ORDER BY w.queue, w.lane, w.required_capabilities, w.priority, {due}, w.id
            LIMIT 1
        ) AS following
        WHERE until IS NULL OR following.lane < until
    )
    SELECT heads.lane::text, heads.required_capabilities::text[], heads.priority::integer, heads.due::timestamptz,
           heads.id
    FROM heads;
END
$$;

-- Choose up to `most` due tasks behind limits, lock them, and take their places: for claim_limited.sql, which leases
-- them. Lanes take turns, beginning where the caller's last claim ended; of a lane, the best task comes first. Lock
-- first, look second: a limit's row is locked before its places are counted, by a statement with a younger snapshot. A
-- limit that another claim holds is passed over, so claims never wait for each other, and can't deadlock.
-- The last row has no task: it says where the next claim begins, and how soon it is worth another look (null: when a
-- notification comes). Others without a task name lanes with tasks that belong behind more limits: name_lanes.sql.
CREATE FUNCTION {schema.}tasklib_admit(
    most integer, queues text[], names text[], capabilities text[], medium_after float8, high_after float8,
    from_queue text, from_lane text, from_taken integer)
RETURNS TABLE (task uuid, height integer, at_queue text, at_lane text, at_taken integer, next_in float8)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    most_hops CONSTANT integer := 200;
    paused_queues text[];
    paused_names text[];
    limited_queues text[];
    limited_names text[];
    probed_names text[]; -- of these, only tasks that are marked as probes
    have_shares boolean;
    -- The walk over the lanes, from here on, and where the next claim begins.
    hops integer := 0;
    wrapped boolean := false;
    first_queue text COLLATE "C" := from_queue;
    first_lane text COLLATE "C" := from_lane;
    here_queue text COLLATE "C" := from_queue;
    here_lane text COLLATE "C" := from_lane;
    turn_queue text COLLATE "C" := from_queue;
    turn_lane text COLLATE "C" := from_lane;
    turn_taken integer := from_taken;
    soonest float8;
    -- Rounds: in the first each lane gets its turn; further ones give what is left to those that have more, and the last
    -- one to shares that may run more than their own.
    round integer := 1;
    bursting boolean := false;
    weights float8 := 0;
    for_round integer := 0;
    list_queues text[] := '{}';
    list_lanes text[] := '{}';
    again_queues text[] := '{}';
    again_lanes text[] := '{}';
    burst_queues text[] := '{}';
    burst_lanes text[] := '{}';
    at integer := 0;
    -- The limits this claim has met, by the name of the row and the key: how many places and tokens are left.
    met text[] := '{}';
    met_rows {schema.}limits[] := '{}';
    met_keys text[] := '{}';
    met_places integer[] := '{}';
    met_tokens float8[] := '{}';
    met_spent float8[] := '{}';
    met_blocked float8[] := '{}';
    met_heads uuid[] := '{}';
    met_adopted boolean[] := '{}'; -- some of its places are given back without a notification
    ours text[] := '{}'; -- rows of limits that are locked
    theirs text[] := '{}'; -- and those that another claim has locked
    -- The lane at hand.
    lane_queue text COLLATE "C";
    lane_name text COLLATE "C";
    lane_until text COLLATE "C";
    lane_weight integer;
    in_order boolean;
    is_open boolean;
    head uuid;
    parts text[];
    part text;
    fields text[];
    use_names text[];
    use_keys text[];
    use_costs integer[];
    used integer[];
    costs integer[];
    cost integer;
    bound {schema.}limits;
    bound_key text;
    place integer;
    running integer;
    garbage integer;
    adopted boolean;
    held uuid;
    known {schema.}limit_states;
    each_seconds float8; -- for one token
    quota integer;
    got integer;
    left_over integer := most;
    picked uuid[] := '{}';
    chosen record;
    soon float8;
BEGIN
    SELECT COALESCE(array_agg(value) FILTER (WHERE kind = 'queue'), '{}'),
           COALESCE(array_agg(value) FILTER (WHERE kind IN ('name', 'open_breaker')), '{}'),
           COALESCE(array_agg(value) FILTER (WHERE kind = 'limited_queue'), '{}'),
           COALESCE(array_agg(value) FILTER (WHERE kind = 'limited_name'), '{}'),
           COALESCE(array_agg(value) FILTER (WHERE kind = 'probing_breaker'), '{}')
    INTO paused_queues, paused_names, limited_queues, limited_names, probed_names
    FROM {schema.}pauses;
    have_shares := EXISTS (SELECT FROM {schema.}limits WHERE name >= 'share' AND name < 'share;');

    <<lanes>>
    WHILE left_over > 0 LOOP
        IF round = 1 THEN
            lane_queue := NULL;
            SELECT w.queue, w.lane INTO lane_queue, lane_name
            FROM {schema.}tasks AS w
            WHERE w.state IN ('pending', 'failed') AND w.waits_for IS NULL
              AND (w.queue, w.lane) >= (here_queue, here_lane)
            ORDER BY w.queue, w.lane, w.required_capabilities, w.priority, {due}, w.id
            LIMIT 1;
            hops := hops + 1;
            IF lane_queue IS NULL AND NOT wrapped AND first_queue > '' THEN
                wrapped := true;
                here_queue := '';
                here_lane := '';
                CONTINUE lanes;
            END IF;
            IF lane_queue IS NULL OR hops > most_hops
               OR wrapped AND (lane_queue, lane_name) >= (first_queue, first_lane) THEN
                IF lane_queue IS NOT NULL AND hops > most_hops THEN -- the next claim goes on here
                    turn_queue := lane_queue;
                    turn_lane := lane_name;
                    turn_taken := 0;
                    soonest := 0;
                END IF;
                round := 2;
                for_round := left_over;
                list_queues := again_queues;
                list_lanes := again_lanes;
                again_queues := '{}';
                again_lanes := '{}';
                CONTINUE lanes;
            END IF;
            IF lane_queue <> ALL (COALESCE(queues, ARRAY[lane_queue])) OR lane_queue = ANY (paused_queues)
               OR lane_name >= E'\x02' AND lane_queue <> ALL (limited_queues) THEN
                here_queue := lane_queue || E'\x01'; -- the next queue
                here_lane := '';
                CONTINUE lanes;
            ELSIF lane_name = '' AND lane_queue <> ALL (limited_queues) THEN
                here_queue := lane_queue;
                here_lane := E'\x01';
                CONTINUE lanes;
            END IF;
        ELSE
            at := at + 1;
            IF at > cardinality(list_lanes) THEN
                IF cardinality(again_lanes) > 0 AND NOT bursting THEN
                    list_queues := again_queues;
                    list_lanes := again_lanes;
                ELSIF cardinality(burst_lanes) > 0 AND NOT bursting THEN
                    bursting := true;
                    list_queues := burst_queues;
                    list_lanes := burst_lanes;
                ELSE
                    EXIT lanes;
                END IF;
                again_queues := '{}';
                again_lanes := '{}';
                at := 0;
                for_round := left_over;
                CONTINUE lanes;
            END IF;
            lane_queue := list_queues[at];
            lane_name := list_lanes[at];
        END IF;

        -- The lanes of a serial queue are one, and so are those of a serial key: their tasks run in the order in which
        -- they became due, and one of them is next.
        lane_until := lane_name || E'\x01';
        here_queue := lane_queue;
        use_names := '{}';
        use_keys := '{}';
        in_order := false;
        IF lane_queue = ANY (limited_queues) THEN
            use_names := ARRAY['queue'];
            use_keys := ARRAY[lane_queue];
            IF EXISTS (SELECT FROM {schema.}limits WHERE name = 'queue:' || lane_queue AND serial IS NOT NULL) THEN
                in_order := true;
                lane_name := '';
                lane_until := NULL;
                here_queue := lane_queue || E'\x01';
            END IF;
        END IF;
        part := split_part(lane_name, E'\x01', 2);
        IF NOT in_order AND left(part, 1) = 'k' THEN
            in_order := true;
            lane_name := E'\x01' || part;
            lane_until := lane_name || E'\x02';
            use_names := use_names || ('serial:' || lane_queue)::text;
            use_keys := use_keys || substr(part, 2);
            IF NOT EXISTS (SELECT FROM {schema.}limits WHERE name = 'serial:' || lane_queue) THEN
                INSERT INTO {schema.}limits (name, serial) VALUES ('serial:' || lane_queue, 'hold')
                ON CONFLICT (name) DO NOTHING;
            END IF;
        END IF;
        here_lane := COALESCE(lane_until, '');
        head := NULL;
        IF in_order THEN
            SELECT first.id INTO head
            FROM {schema.}tasklib_heads(lane_queue, lane_name, lane_until) AS first
            ORDER BY first.due, first.id
            LIMIT 1;
        END IF;

        -- Lock each limit and look at it, once for the whole claim. First those that decide which task is next; then
        -- those that are written in the lane.
        used := '{}';
        costs := '{}';
        is_open := true;
        lane_weight := 1;
        <<phases>>
        FOR phase IN 1 .. 2 LOOP
            use_costs := array_fill(1, ARRAY[cardinality(use_names)]);
            IF phase = 2 THEN
                use_names := '{}';
                use_keys := '{}';
                use_costs := '{}';
                parts := string_to_array(
                    CASE WHEN in_order THEN (SELECT w.lane FROM {schema.}tasks AS w WHERE w.id = head)
                         ELSE lane_name END, E'\x01');
                -- Other lanes hold names.
                CONTINUE phases WHEN parts[1] <> '' OR parts IS NULL;
                FOREACH part IN ARRAY parts LOOP
                    fields := string_to_array(substr(part, 2), E'\x02');
                    IF left(part, 1) = 's' AND have_shares THEN
                        fields := ARRAY['share', fields[1]];
                    ELSIF left(part, 1) = 'k' AND in_order AND lane_until IS NULL THEN
                        CONTINUE; -- a serial queue is stricter than its keys
                    ELSIF left(part, 1) IS DISTINCT FROM 'l' THEN
                        CONTINUE;
                    END IF;
                    use_names := use_names || fields[1];
                    use_keys := use_keys || COALESCE(fields[2], '');
                    use_costs := use_costs || COALESCE(NULLIF(fields[3], '')::integer, 1);
                END LOOP;
            END IF;
            FOR i IN 1 .. cardinality(use_names) LOOP
                bound := NULL;
                SELECT * INTO bound FROM {schema.}limits
                WHERE name = use_names[i] OR use_keys[i] <> '' AND name = use_names[i] || ':' || use_keys[i]
                ORDER BY length(name) DESC
                LIMIT 1;
                CONTINUE WHEN bound.name IS NULL;
                IF use_names[i] = 'share' THEN
                    lane_weight := COALESCE(bound.weight, 1);
                END IF;
                bound_key := CASE WHEN bound.name = use_names[i] THEN use_keys[i] ELSE '' END;
                CONTINUE WHEN COALESCE(bound.max_running, bound.rate) IS NULL AND bound.serial IS NULL
                    AND NOT EXISTS (SELECT FROM {schema.}limit_states AS blocked
                                    WHERE limit_name = bound.name AND key = bound_key AND blocked_until > now());
                place := array_position(met, bound.name || E'\x02' || bound_key);
                IF place IS NULL THEN
                    IF bound.name = ANY (theirs) THEN
                        is_open := false;
                        EXIT phases;
                    ELSIF bound.name <> ALL (ours) THEN
                        PERFORM FROM {schema.}limits WHERE name = bound.name FOR NO KEY UPDATE SKIP LOCKED;
                        IF NOT FOUND THEN
                            theirs := theirs || bound.name;
                            soonest := least(soonest, 0.005);
                            is_open := false;
                            EXIT phases;
                        END IF;
                        ours := ours || bound.name;
                    END IF;
                    -- As it is now: it may have changed before it was locked.
                    SELECT * INTO bound FROM {schema.}limits WHERE name = bound.name;
                    -- Tasks that began before there was a row for this one key, or while there was one, count too.
                    SELECT count(*) FILTER (WHERE counts), count(*) FILTER (WHERE NOT counts),
                           (array_agg(id) FILTER (WHERE counts AND waits))[1],
                           bool_or(counts AND NOT waits AND NOT is_behind AND block = 0)
                    INTO running, garbage, held, adopted
                    FROM (
                        SELECT runs.id, p.block, runs.state <> 'running' AS waits,
                               runs.lane >= E'\x01' AND runs.lane < E'\x02' AS is_behind,
                               COALESCE(runs.lease_token = p.token AND runs.state = 'running'
                                        OR p.held AND bound.serial = 'hold' AND runs.state IN ('pending', 'failed')
                                           -- The next one: a claim took the place and left the task (claim_limited.sql).
                                           AND runs.lease_token IN (p.token, p.token - 1),
                                        false) AS counts
                        FROM (VALUES (use_names[i], use_keys[i]), (use_names[i] || ':' || use_keys[i], ''))
                                 AS spelled (limit_name, key)
                        JOIN {schema.}places AS p ON p.limit_name = spelled.limit_name AND p.key = spelled.key
                        LEFT JOIN {schema.}tasks AS runs ON runs.id = p.task
                    ) AS taken;
                    IF garbage > 0 THEN
                        DELETE FROM {schema.}places AS p
                        USING (VALUES (use_names[i], use_keys[i]), (use_names[i] || ':' || use_keys[i], ''))
                                  AS spelled (limit_name, key)
                        WHERE p.limit_name = spelled.limit_name AND p.key = spelled.key
                          AND NOT EXISTS (
                              SELECT FROM {schema.}tasks AS runs
                              WHERE runs.id = p.task
                                AND (runs.lease_token = p.token AND runs.state = 'running'
                                     OR p.held AND bound.serial = 'hold' AND runs.state IN ('pending', 'failed')
                                        AND runs.lease_token IN (p.token, p.token - 1)));
                    END IF;
                    known := NULL;
                    SELECT * INTO known FROM {schema.}limit_states WHERE limit_name = bound.name AND key = bound_key;
                    each_seconds := bound.per / bound.rate;
                    met := met || (bound.name || E'\x02' || bound_key);
                    met_rows := met_rows || bound;
                    met_keys := met_keys || bound_key;
                    met_spent := met_spent || 0::float8;
                    met_heads := array_append(met_heads, held);
                    met_adopted := array_append(met_adopted, COALESCE(adopted, false));
                    met_places := array_append(met_places, CASE
                        WHEN bound.serial IS NOT NULL THEN 1 - running + (held IS NOT NULL)::integer
                        WHEN bound.max_running IS NOT NULL THEN greatest(0, bound.max_running - running) END);
                    met_tokens := array_append(met_tokens, extract(epoch FROM now() - greatest(
                        known.empty_at, now() - make_interval(secs => bound.burst * each_seconds)))::float8
                        / each_seconds);
                    met_blocked := array_append(met_blocked, CASE WHEN known.blocked_until > now()
                        THEN extract(epoch FROM known.blocked_until - now())::float8 END);
                    place := cardinality(met);
                END IF;
                bound := met_rows[place];
                cost := least(use_costs[i], bound.burst);
                used := used || place;
                costs := costs || cost;
                IF phase = 1 AND met_heads[place] IS NOT NULL THEN
                    head := met_heads[place];
                END IF;
                IF met_blocked[place] IS NOT NULL THEN
                    soonest := least(soonest, met_blocked[place]);
                    is_open := false;
                ELSIF met_places[place] < 1 AND NOT (bursting AND use_names[i] = 'share') THEN
                    IF use_names[i] = 'share' AND bound.may_burst AND round = 1 THEN
                        burst_queues := burst_queues || lane_queue;
                        burst_lanes := burst_lanes || lane_name;
                    END IF;
                    -- What ran when the limit was set is completed by a statement that knows nothing of places.
                    IF met_adopted[place] THEN
                        soonest := least(soonest, 0.1);
                    END IF;
                    is_open := false;
                -- A little less than whole: a moment is stored in microseconds.
                ELSIF met_tokens[place] - met_spent[place] < cost - 0.000001 THEN
                    soonest := least(soonest, (cost - met_tokens[place] + met_spent[place]) * bound.per / bound.rate);
                    is_open := false;
                END IF;
                EXIT phases WHEN NOT is_open;
            END LOOP;
        END LOOP;
        CONTINUE lanes WHEN NOT is_open;

        -- How many of this lane.
        quota := CASE WHEN round = 1 THEN lane_weight
                      ELSE greatest(1, ceil(for_round * lane_weight / greatest(weights, 1)))::integer END;
        IF round = 1 AND NOT wrapped AND lane_queue = first_queue AND lane_name = first_lane THEN
            quota := greatest(quota - from_taken, 1);
        END IF;
        quota := least(quota, left_over);
        FOR i IN 1 .. cardinality(used) LOOP
            quota := least(quota,
                           CASE WHEN met_places[used[i]] >= 1 THEN met_places[used[i]] END,
                           floor((met_tokens[used[i]] - met_spent[used[i]] + 0.000001) / costs[i])::integer);
        END LOOP;

        got := 0;
        FOR chosen IN
            SELECT taken.id, taken.lease_token, candidate.height
            FROM (
                SELECT first.id, first.due,
                       {schema.}tasklib_effective_priority(within.priority, first.due, medium_after, high_after, now())
                           AS height
                FROM {schema.}tasklib_heads(CASE WHEN NOT in_order THEN lane_queue END, lane_name, lane_until) AS within
                CROSS JOIN LATERAL (
                    SELECT w.id, {due} AS due
                    FROM {schema.}tasks AS w
                    WHERE w.state IN ('pending', 'failed') AND w.waits_for IS NULL
                      AND w.queue = lane_queue AND w.lane = lane_name
                      AND w.required_capabilities = within.required_capabilities
                      AND w.priority = within.priority
                      AND {due} <= now()
                      AND (names IS NULL OR w.name = ANY (names))
                      AND w.name <> ALL (paused_names)
                      AND (w.name <> ALL (probed_names) OR EXISTS (
                          SELECT FROM {schema.}breakers AS probed WHERE probed.name = w.name AND w.id = ANY (probed.probe_ids)))
                      AND (w.name <> ALL (limited_names) OR {schema.}tasklib_lane(w.name, w.lane, w.kwargs) = w.lane)
                      AND w.id <> ALL (picked)
                    ORDER BY {due}, w.id
                    LIMIT 2 * quota + 20 -- some may be locked
                ) AS first
                WHERE within.required_capabilities <@ capabilities
                UNION ALL
                SELECT w.id, {due},
                       {schema.}tasklib_effective_priority(w.priority, {due}, medium_after, high_after, now())
                FROM {schema.}tasks AS w
                WHERE in_order AND w.id = head
                  AND {due} <= now()
                  AND w.required_capabilities <@ capabilities
                  AND (names IS NULL OR w.name = ANY (names))
                  AND w.name <> ALL (paused_names)
                  AND (w.name <> ALL (probed_names) OR EXISTS (
                      SELECT FROM {schema.}breakers AS probed WHERE probed.name = w.name AND w.id = ANY (probed.probe_ids)))
                  AND (w.name <> ALL (limited_names) OR {schema.}tasklib_lane(w.name, w.lane, w.kwargs) = w.lane)
            ) AS candidate
            JOIN {schema.}tasks AS taken ON taken.id = ANY (ARRAY[candidate.id])
            WHERE COALESCE(taken.state, '') IN ('pending', 'failed') AND taken.waits_for IS NULL
              AND COALESCE(taken.next_retry_at, taken.scheduled_at) = candidate.due
            ORDER BY candidate.height DESC, candidate.due, candidate.id
            LIMIT quota
            FOR UPDATE OF taken SKIP LOCKED
        LOOP
            FOR i IN 1 .. cardinality(used) LOOP
                place := used[i];
                bound := met_rows[place];
                met_places[place] := met_places[place] - 1;
                met_spent[place] := met_spent[place] + CASE WHEN bound.rate IS NULL THEN 0 ELSE costs[i] END;
                met_heads[place] := NULL;
                IF bound.max_running IS NOT NULL OR bound.serial IS NOT NULL THEN
                    INSERT INTO {schema.}places (task, limit_name, key, token, held)
                    VALUES (chosen.id, bound.name, met_keys[place], chosen.lease_token + 1,
                            bound.serial IS NOT DISTINCT FROM 'hold')
                    ON CONFLICT ON CONSTRAINT places_pkey DO UPDATE SET token = EXCLUDED.token, held = EXCLUDED.held;
                END IF;
            END LOOP;
            got := got + 1;
            left_over := left_over - 1;
            picked := picked || chosen.id;
            task := chosen.id;
            height := chosen.height;
            RETURN NEXT;
        END LOOP;

        IF round = 1 AND got > 0 THEN
            weights := weights + lane_weight;
            turn_taken := got + CASE WHEN turn_queue = lane_queue AND turn_lane = lane_name THEN turn_taken ELSE 0 END;
            turn_queue := lane_queue;
            turn_lane := lane_name;
            IF turn_taken >= lane_weight THEN
                turn_queue := here_queue;
                turn_lane := here_lane;
                turn_taken := 0;
            END IF;
        END IF;
        IF got > 0 AND NOT in_order AND got = quota THEN
            again_queues := again_queues || lane_queue;
            again_lanes := again_lanes || lane_name;
        ELSIF got = 0 THEN
            SELECT extract(epoch FROM min({due}) - now())::float8, min(w.lane) INTO soon, part
            FROM {schema.}tasks AS w
            WHERE w.id = ANY (CASE WHEN in_order THEN ARRAY[head] ELSE ARRAY(
                SELECT first.id FROM {schema.}tasklib_heads(lane_queue, lane_name, lane_until) AS first) END);
            IF soon > 0 THEN
                soonest := least(soonest, soon);
            -- No lane: the tasks that were there have been claimed by another worker meanwhile.
            ELSIF part IS NOT NULL AND cardinality(limited_names) > 0 THEN
                task := NULL;
                height := NULL;
                at_queue := lane_queue;
                at_lane := part;
                RETURN NEXT;
            END IF;
        END IF;
    END LOOP;

    -- What this claim has spent of rates.
    FOR i IN 1 .. cardinality(met) LOOP
        CONTINUE WHEN met_spent[i] = 0;
        bound := met_rows[i];
        each_seconds := bound.per / bound.rate;
        INSERT INTO {schema.}limit_states AS used_up (limit_name, key, empty_at)
        VALUES (bound.name, met_keys[i], now() - make_interval(secs => (bound.burst - met_spent[i]) * each_seconds))
        ON CONFLICT ON CONSTRAINT limit_states_pkey DO UPDATE
        SET empty_at = greatest(used_up.empty_at, now() - make_interval(secs => bound.burst * each_seconds))
                       + make_interval(secs => met_spent[i] * each_seconds);
    END LOOP;
    task := NULL;
    height := NULL;
    at_queue := turn_queue;
    at_lane := turn_lane;
    at_taken := turn_taken;
    next_in := soonest;
    RETURN NEXT;
END
$$;

-- A place, or a start, of a limit for a task that runs: `with limit(...)` in its code. As in a claim, the limit's row is
-- locked before its places are counted. This waits for the lock and holds no other, so it can't deadlock. The time is read
-- after the lock, for waiting must not gather tokens. `nested`: how many blocks of this limit are around this one.
-- 'taken', 'full', 'later' (with the seconds), 'never' (the task itself holds all places) or 'unknown'.
CREATE FUNCTION {schema.}tasklib_take_place(
    of_task uuid, with_token bigint, of_limit text, of_key text, asked integer, of_block integer, nested integer)
RETURNS TABLE (outcome text, next_in float8)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    bound {schema.}limits;
    bound_key text;
    known {schema.}limit_states;
    lane_key text := {schema.}tasklib_lane_key(of_key);
    moment timestamptz;
    running integer;
    garbage integer;
    claimed integer;
    cost integer;
    each_seconds float8;
    full_at timestamptz; -- from when on the tokens count
BEGIN
    SELECT * INTO bound FROM {schema.}limits
    WHERE name = of_limit OR lane_key <> '' AND name = of_limit || ':' || lane_key
    ORDER BY length(name) DESC
    LIMIT 1
    FOR NO KEY UPDATE;
    IF bound.name IS NULL THEN
        RETURN QUERY SELECT 'unknown', NULL::float8;
        RETURN;
    END IF;
    bound_key := CASE WHEN bound.name = of_limit THEN lane_key ELSE '' END;
    moment := clock_timestamp();
    SELECT * INTO known FROM {schema.}limit_states WHERE limit_name = bound.name AND key = bound_key;
    -- A block that asks again after a lost answer may have its place.
    SELECT count(*) FILTER (WHERE counts AND NOT ours), count(*) FILTER (WHERE NOT counts),
           count(*) FILTER (WHERE counts AND task = of_task AND block = 0)
    INTO running, garbage, claimed
    FROM (
        SELECT p.task, p.block, p.task = of_task AND p.token = with_token AND p.block = of_block AS ours,
               COALESCE(runs.lease_token = p.token AND runs.state = 'running', false) AS counts
        FROM (VALUES (of_limit, lane_key), (of_limit || ':' || lane_key, '')) AS spelled (limit_name, key)
        JOIN {schema.}places AS p ON p.limit_name = spelled.limit_name AND p.key = spelled.key
        LEFT JOIN {schema.}tasks AS runs ON runs.id = p.task
    ) AS taken;
    IF garbage > 0 THEN
        DELETE FROM {schema.}places AS p
        WHERE p.limit_name = bound.name AND p.key = bound_key
          AND NOT EXISTS (SELECT FROM {schema.}tasks AS runs
                          WHERE runs.id = p.task AND runs.lease_token = p.token AND runs.state = 'running');
    END IF;
    IF known.blocked_until > moment THEN
        RETURN QUERY SELECT 'later', extract(epoch FROM known.blocked_until - moment)::float8;
        RETURN;
    END IF;
    IF running >= bound.max_running THEN
        RETURN QUERY SELECT CASE WHEN bound.max_running > 0 AND claimed + nested >= bound.max_running
                                 THEN 'never' ELSE 'full' END, NULL::float8;
        RETURN;
    END IF;
    IF bound.rate IS NOT NULL THEN
        cost := least(asked, bound.burst);
        each_seconds := bound.per / bound.rate;
        full_at := greatest(known.empty_at, moment - make_interval(secs => bound.burst * each_seconds));
        -- A little less than whole: a moment is stored in microseconds.
        IF extract(epoch FROM moment - full_at)::float8 / each_seconds < cost - 0.000001 THEN
            RETURN QUERY SELECT 'later',
                cost * each_seconds - extract(epoch FROM moment - full_at)::float8;
            RETURN;
        END IF;
        INSERT INTO {schema.}limit_states AS used_up (limit_name, key, empty_at)
        VALUES (bound.name, bound_key, full_at + make_interval(secs => cost * each_seconds))
        ON CONFLICT ON CONSTRAINT limit_states_pkey DO UPDATE SET empty_at = EXCLUDED.empty_at;
    END IF;
    IF bound.max_running IS NOT NULL THEN
        INSERT INTO {schema.}places (task, limit_name, key, token, block)
        VALUES (of_task, bound.name, bound_key, with_token, of_block)
        ON CONFLICT ON CONSTRAINT places_pkey DO UPDATE SET token = EXCLUDED.token;
    END IF;
    RETURN QUERY SELECT 'taken', NULL::float8;
END
$$;

-- ---- breakers ----

-- Circuit breakers of task names: after too many failures the tasks of a name wait, then some run as probes. The leader
-- moves them on (breakers_judge.sql). A row without `failures` is off; it keeps that an operator removed what the code
-- declares.
CREATE TABLE {schema.}breakers (
    name          text        COLLATE "C" NOT NULL,
    state         text        NOT NULL DEFAULT 'closed',
    since         timestamptz NOT NULL DEFAULT now(), -- attempts before it don't count
    opened        bigint      NOT NULL DEFAULT 0, -- how often
    source        text        NOT NULL DEFAULT 'api', -- 'code' until an operator changes it
    changed_at    timestamptz NOT NULL DEFAULT now(),
    changed_by    text        NOT NULL DEFAULT '', -- 'leader', if the last change is its own
    -- Of a breaker that probes: tasks that are under way as probes, each with the token it had; how many were successful.
    probe_ids     uuid[]      NOT NULL DEFAULT '{}',
    probe_tokens  bigint[]    NOT NULL DEFAULT '{}',
    passed        integer     NOT NULL DEFAULT 0,

    failures      double precision, -- this share of failures, from 0 to 1,
    at_least      integer, -- of at least so many attempts
    within        double precision, -- in so many seconds opens it,
    pause         double precision, -- for so many seconds,
    probes        integer, -- and so many probes close it
    declared      jsonb, -- what the code says
    until         timestamptz, -- open: when it probes; null: an operator opened it, and closes it
    probed_at     timestamptz, -- when probes were chosen last
    seen_attempts bigint, -- what it opened for
    seen_failures bigint,

    CONSTRAINT breakers_pkey PRIMARY KEY (name),
    CONSTRAINT breakers_state_known CHECK (state IN ('closed', 'open', 'probing')),
    CONSTRAINT breakers_source_known CHECK (source IN ('code', 'api')),
    CONSTRAINT breakers_whole CHECK (num_nonnulls(failures, at_least, within, pause, probes) IN (0, 5)),
    CONSTRAINT breakers_in_range
        CHECK (failures > 0 AND failures <= 1 AND at_least > 0 AND within > 0 AND within <= 86400
               AND pause > 0 AND pause <= 31536000 AND probes BETWEEN 1 AND 1000)
) WITH (fillfactor = 50);

-- What the leader has folded of the stats of names with breakers: of this one, the exact time is kept.
CREATE TABLE {schema.}breaker_counts (
    id       bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    name     text        COLLATE "C" NOT NULL,
    at       timestamptz NOT NULL,
    attempts bigint      NOT NULL,
    failed   bigint      NOT NULL,
    CONSTRAINT breaker_counts_pkey PRIMARY KEY (id)
);
CREATE INDEX breaker_counts_name ON {schema.}breaker_counts (name, at);

-- Claims read of open breakers in `pauses`. What the leader does is recorded in the audit here, because a worker may not
-- write that. It runs as its owner for both.
CREATE FUNCTION {schema.}tasklib_mark_breaker() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    changed text := CASE WHEN TG_OP = 'DELETE' THEN OLD.name ELSE NEW.name END;
    was text := CASE WHEN TG_OP = 'INSERT' THEN 'closed' ELSE OLD.state END;
    becomes text := CASE WHEN TG_OP = 'DELETE' THEN 'closed' ELSE NEW.state END;
BEGIN
    IF was = becomes THEN
        RETURN NULL;
    END IF;
    EXECUTE format('DELETE FROM %I.pauses WHERE kind = $1 AND value = $2', TG_TABLE_SCHEMA)
    USING was || '_breaker', changed;
    IF becomes <> 'closed' THEN
        EXECUTE format('INSERT INTO %I.pauses (kind, value) VALUES ($1, $2) ON CONFLICT DO NOTHING', TG_TABLE_SCHEMA)
        USING becomes || '_breaker', changed;
    END IF;
    IF TG_OP = 'UPDATE' AND NEW.changed_by = 'leader' AND becomes <> 'probing' THEN
        EXECUTE format('INSERT INTO %I.audit (actor, action, target, details) VALUES ($1, $2, $3, $4)', TG_TABLE_SCHEMA)
        USING 'leader', 'breaker.' || CASE becomes WHEN 'closed' THEN 'close' ELSE 'open' END, 'breaker:' || changed,
              jsonb_strip_nulls(jsonb_build_object(
                  'until', NEW.until, 'attempts', CASE WHEN was = 'closed' THEN NEW.seen_attempts END,
                  'failures', CASE WHEN was = 'closed' THEN NEW.seen_failures END));
    END IF;
    EXECUTE format('SELECT pg_notify(%L, '''')', 'tasklib_' || TG_TABLE_SCHEMA);
    RETURN NULL;
END
$$;

CREATE TRIGGER breakers_marked AFTER INSERT OR UPDATE OF state OR DELETE ON {schema.}breakers
    FOR EACH ROW EXECUTE FUNCTION {schema.}tasklib_mark_breaker();

-- ---- stats ----

-- What happened, as it is reported: by workers every few seconds, by the statement itself where no worker is part of
-- it. Rows are only ever added, so no writer waits for another; the leader moves them into `stats`. The key is for
-- logical replication, which refuses to delete from a table without one.
CREATE TABLE {schema.}stats_deltas (
    id      bigint           NOT NULL GENERATED ALWAYS AS IDENTITY,
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
    waits   bigint[]         NOT NULL DEFAULT '{}',
    worker  text             COLLATE "C" NOT NULL DEFAULT '', -- on which worker, if on one
    CONSTRAINT stats_deltas_pkey PRIMARY KEY (id)
);

-- The same by time: spans of 60, 600 and 3600 seconds for charts. Old rows are merged into longer spans, then deleted.
-- Span 0 is the total since the beginning, without names and queues; with the deltas it is exact. Rows with a worker count
-- the same attempts a second time, by worker and outcome alone, for two days.
CREATE TABLE {schema.}stats (
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
    worker  text             COLLATE "C" NOT NULL DEFAULT '',
    CONSTRAINT stats_pkey PRIMARY KEY (span, start, name, queue, level, outcome, reason, worker)
) WITH (fillfactor = 70);
CREATE INDEX stats_worker ON {schema.}stats (worker, start) WHERE worker <> '';

-- How deep each queue was at each level, as the leader counted it last in each minute; and each name, in rows without a
-- queue. The row with neither says that the leader counted: in that minute nothing waited where there is no other row.
CREATE TABLE {schema.}depths (
    minute             timestamptz      NOT NULL,
    queue              text             COLLATE "C" NOT NULL,
    level              text             COLLATE "C" NOT NULL,
    depth              bigint           NOT NULL,
    capped             boolean          NOT NULL,
    oldest_age_seconds double precision NOT NULL,
    name               text             COLLATE "C" NOT NULL DEFAULT '',
    CONSTRAINT depths_pkey PRIMARY KEY (minute, queue, name, level)
);

-- The deploys whose workers have joined the fleet: the mark on charts is where the first of them did. Kept for 31 days.
CREATE TABLE {schema.}deploys (
    deployed_at timestamptz NOT NULL, -- as configured, or when the newest file with task functions was changed
    seen_at     timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT deploys_pkey PRIMARY KEY (deployed_at)
);

-- Of these queues and names, those with bounds: how long the oldest due task waits, and how many wait. Of a queue the
-- wait is exact; the rest is what the leader counted last, if that is no older than two minutes.
CREATE FUNCTION {schema.}tasklib_pressure(subjects text[])
RETURNS TABLE (subject text, max_wait double precision, max_pending bigint, oldest_age double precision, pending bigint)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT bounds.subject::text, bounds.max_wait, bounds.max_pending,
           CASE WHEN bounds.max_wait IS NULL THEN NULL
                WHEN bounds.subject LIKE 'name:%' THEN counted.oldest_age
                ELSE (
               WITH RECURSIVE heads AS (
                   (SELECT w.lane, w.required_capabilities, w.priority, {due} AS due
                    FROM {schema.}tasks AS w
                    WHERE w.state IN ('pending', 'failed') AND w.waits_for IS NULL
                      AND w.queue = substr(bounds.subject, 7)
                    ORDER BY w.queue, w.lane, w.required_capabilities, w.priority, {due}, w.id
                    LIMIT 1)
                   UNION ALL
                   SELECT following.*
                   FROM heads
                   CROSS JOIN LATERAL (
                       SELECT w.lane, w.required_capabilities, w.priority, {due} AS due
                       FROM {schema.}tasks AS w
                       WHERE w.state IN ('pending', 'failed') AND w.waits_for IS NULL
                         AND w.queue = substr(bounds.subject, 7)
                         AND (w.queue, w.lane, w.required_capabilities, w.priority)
                             > (substr(bounds.subject, 7), heads.lane, heads.required_capabilities, heads.priority)
                       ORDER BY w.queue, w.lane, w.required_capabilities, w.priority, {due}, w.id
                       LIMIT 1
                   ) AS following
               )
               SELECT extract(epoch FROM now() - min(due))::float8 FROM (SELECT due FROM heads LIMIT 1000) AS first) END,
           CASE WHEN bounds.max_pending IS NULL THEN NULL
                WHEN bounds.subject LIKE 'name:%' THEN counted.pending
                ELSE (
               SELECT sum((level ->> 'depth')::bigint)::bigint
               FROM {schema.}snapshots
               CROSS JOIN jsonb_array_elements(figures -> 'levels') AS level
               WHERE level ->> 'queue' = substr(bounds.subject, 7)) END
    FROM {schema.}backpressure AS bounds
    LEFT JOIN LATERAL (
        SELECT sum(depth)::bigint AS pending, max(oldest_age_seconds) AS oldest_age
        FROM {schema.}depths
        WHERE bounds.subject LIKE 'name:%' AND queue = '' AND name = substr(bounds.subject, 6)
          AND minute = (SELECT max(minute) FROM {schema.}depths WHERE minute > now() - interval '2 minutes')
    ) AS counted ON true
    WHERE bounds.subject = ANY (subjects)
    ORDER BY bounds.subject;
END
$$;

-- Whether a queue (and a name) is within its bounds, for plain SQL that asks before it inserts:
-- INSERT INTO tasks (name, queue) SELECT 'send_email', 'mail' WHERE tasklib_has_room('mail', 'send_email')
CREATE FUNCTION {schema.}tasklib_has_room(queue text, name text DEFAULT NULL) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT NOT EXISTS (
        SELECT FROM {schema.}tasklib_pressure(ARRAY['queue:' || $1, 'name:' || $2]) AS found
        WHERE found.oldest_age > found.max_wait OR found.pending >= found.max_pending)
$$;

-- The table that holds the rows of this one: itself, or in a schema that Citus distributes a shard, if it is on this node.
CREATE FUNCTION {schema.}tasklib_stored(relation regclass) RETURNS regclass LANGUAGE plpgsql STABLE AS $$
DECLARE
    shard regclass;
BEGIN
    IF to_regclass('pg_catalog.pg_dist_shard') IS NOT NULL THEN
        EXECUTE 'SELECT to_regclass(shard_name(logicalrelid, shardid)) FROM pg_dist_shard WHERE logicalrelid = $1'
        INTO shard USING relation;
    END IF;
    RETURN COALESCE(shard, relation);
END
$$;

-- How large a table is, and how its states are shared out, by the last ANALYZE. A function, because Citus joins no catalog
-- with tables of ours.
CREATE FUNCTION {schema.}tasklib_measured(relation regclass)
RETURNS TABLE (bytes bigint, reltuples real, states text[], shares real[]) LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY
    SELECT pg_relation_size(c.oid), c.reltuples, s.most_common_vals::text::text[], s.most_common_freqs
    FROM pg_class AS c
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    LEFT JOIN pg_stats AS s ON s.schemaname = n.nspname AND s.tablename = c.relname AND s.attname = 'state'
    WHERE c.oid = {schema.}tasklib_stored(relation);
END
$$;

-- The histogram of these times: how many are below the first of the bounds, from there to the second, and so on. Of none
-- it is empty.
CREATE FUNCTION {schema.}tasklib_histogram(times double precision[], bounds double precision[]) RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN CASE WHEN times IS NULL THEN '{}' ELSE ARRAY(
        SELECT count(*) FILTER (WHERE width_bucket(took, bounds) = bucket)
        FROM generate_series(0, cardinality(bounds)) AS bucket, unnest(times) AS took
        GROUP BY bucket ORDER BY bucket) END;
END
$$;

-- The sum of two histograms.
CREATE FUNCTION {schema.}tasklib_added(one bigint[], other bigint[]) RETURNS bigint[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT COALESCE(array_agg(COALESCE(a, 0) + COALESCE(b, 0) ORDER BY place), '{}')
    FROM unnest(one, other) WITH ORDINALITY AS both_of (a, b, place)
$$;

-- ---- replays ----

-- Jobs that replay dead letters: the leader takes the next ones at their rate (maintenance/replays.py). A job takes only
-- what was given up before it began, and each task once.
CREATE TABLE {schema.}replays (
    id                 uuid             NOT NULL DEFAULT {schema.}tasklib_new_id(),
    status             text             NOT NULL DEFAULT 'running',
    conditions         jsonb            NOT NULL, -- which dead letters: those of a DeadLetterFilter
    before             timestamptz      NOT NULL DEFAULT now(),
    next_at            timestamptz      NOT NULL DEFAULT now(), -- when the rate allows the next one
    missed             boolean          NOT NULL DEFAULT false, -- this pass left out rows that were locked: one more follows
    settled            boolean          NOT NULL DEFAULT false, -- it has ended, and so has each of its tasks
    expected           bigint           NOT NULL, -- how many dead letters there were
    expected_is_capped boolean          NOT NULL,
    replayed           bigint           NOT NULL DEFAULT 0,
    completed          bigint           NOT NULL DEFAULT 0, -- what became of those
    failed             bigint           NOT NULL DEFAULT 0,
    dropped            bigint           NOT NULL DEFAULT 0, -- cancelled or deleted
    created_at         timestamptz      NOT NULL DEFAULT now(),
    created_by         text             NOT NULL,

    per_minute         double precision, -- null: no limit
    canary             text, -- null: none. The others wait until it has passed
    canary_task        uuid,
    reason             text, -- why the leader paused it
    after_time         timestamptz, -- where the last batch ended: `completed_at` and id of a dead letter
    after_id           uuid,
    checked_after      uuid, -- where counting what became of its tasks goes on
    ended_at           timestamptz,

    CONSTRAINT replays_pkey PRIMARY KEY (id),
    CONSTRAINT replays_status_known CHECK (status IN ('running', 'paused', 'done', 'stopped')),
    CONSTRAINT replays_canary_known CHECK (canary IN ('wanted', 'waiting', 'passed', 'failed')),
    CONSTRAINT replays_conditions_is_object CHECK (jsonb_typeof(conditions) = 'object'),
    CONSTRAINT replays_rate_in_range CHECK (per_minute > 0 AND per_minute <= 1000000)
) WITH (fillfactor = 50);
CREATE INDEX replays_open ON {schema.}replays (id) WHERE NOT settled;
-- The same dead letters are replayed by one job at a time.
CREATE UNIQUE INDEX replays_once ON {schema.}replays (md5(conditions::text)) WHERE status IN ('running', 'paused');

-- Which tasks a job has replayed, and how they ended.
CREATE TABLE {schema.}replayed_tasks (
    replay  uuid        NOT NULL,
    task    uuid        NOT NULL,
    at      timestamptz NOT NULL DEFAULT now(),

    outcome text, -- completed, dead_letter, cancelled or deleted; null: not ended

    CONSTRAINT replayed_tasks_pkey PRIMARY KEY (replay, task),
    CONSTRAINT replayed_tasks_outcome_known CHECK (outcome IN ('completed', 'dead_letter', 'cancelled', 'deleted'))
);
CREATE INDEX replayed_tasks_open ON {schema.}replayed_tasks (replay, task) WHERE outcome IS NULL;

-- ---- tokens and audit ----

-- Tokens for the HTTP API. Only the SHA-256 of a token is kept: a reader of this table can't use it as a key.
-- Rows are never deleted, so that a revoked token still has a name in the audit.
CREATE TABLE {schema.}api_tokens (
    id           uuid        NOT NULL DEFAULT {schema.}tasklib_new_id(),
    name         text        NOT NULL,
    prefix       text        COLLATE "C" NOT NULL,
    hash         bytea       NOT NULL,
    roles        text[]      NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    created_by   text        NOT NULL,

    queues       text[], -- null: any
    expires_at   timestamptz,
    revoked_at   timestamptz,
    last_used_at timestamptz,

    CONSTRAINT api_tokens_pkey PRIMARY KEY (id),
    CONSTRAINT api_tokens_prefix_once UNIQUE (prefix),
    CONSTRAINT api_tokens_name_not_empty CHECK (name <> ''),
    CONSTRAINT api_tokens_hash_is_sha256 CHECK (length(hash) = 32),
    CONSTRAINT api_tokens_roles_known
        CHECK (cardinality(roles) > 0 AND roles <@ '{viewer,submitter,worker,approver,operator,admin}'::text[]),
    CONSTRAINT api_tokens_queues_not_empty CHECK (cardinality(queues) > 0),
    CONSTRAINT api_tokens_times_in_range
        CHECK (least(created_at, expires_at, revoked_at, last_used_at) >= '0001-01-03 00:00:00+00'
               AND greatest(created_at, expires_at, revoked_at, last_used_at) < '9999-12-30 00:00:00+00')
);

-- Who changed what, written by the statement that changed it.
CREATE TABLE {schema.}audit (
    id      bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    at      timestamptz NOT NULL DEFAULT now(),
    actor   text        NOT NULL,
    action  text        NOT NULL,
    details jsonb       NOT NULL DEFAULT '{}',

    target  text,

    CONSTRAINT audit_pkey PRIMARY KEY (id),
    CONSTRAINT audit_details_is_object CHECK (jsonb_typeof(details) = 'object')
);

-- What happened to this task, and who did it?
CREATE INDEX audit_target ON {schema.}audit (target, id) WHERE target IS NOT NULL;

CREATE FUNCTION {schema.}tasklib_keep_audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit is only ever added to: % is refused', TG_OP
        USING ERRCODE = 'object_not_in_prerequisite_state';
END
$$;

-- Two triggers: Citus has none on TRUNCATE, and would leave out one that is also on that.
CREATE TRIGGER audit_keep BEFORE UPDATE OR DELETE ON {schema.}audit
    FOR EACH STATEMENT EXECUTE FUNCTION {schema.}tasklib_keep_audit();
CREATE TRIGGER audit_keep_all BEFORE TRUNCATE ON {schema.}audit
    FOR EACH STATEMENT EXECUTE FUNCTION {schema.}tasklib_keep_audit();
