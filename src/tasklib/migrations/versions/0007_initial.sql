-- The schema of TaskLib. In this order: ids, tasks, workers, durable tasks, leadership, flows, schedules, pauses and
-- settings, stats, tokens and audit.
-- In each table the columns that always have a value come first, then those that may be null.

-- ---- ids ----

-- Ids sort by time (UUID version 7): 48 bits of milliseconds, the version, 12 bits of the microseconds within, the
-- variant, 10 bits of the shard, 52 bits of chance. The hexadecimal 800 is the variant and shard 0, the only one for
-- now. `tasks/ids.py` makes the same.
CREATE FUNCTION {schema.}tasklib_new_id() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
  SELECT (lpad(to_hex(us / 1000), 12, '0') || '7' || lpad(to_hex((us % 1000) * 4096 / 1000), 3, '0')
          || '800' || right(gen_random_uuid()::text, 14))::uuid
  FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS us) AS clock
$$;

-- ---- tasks ----

-- A row with nothing but a name is a complete task: every other column has a default or may be null.
-- Names and queues compare by bytes ("C"): it is faster, and the claim relies on it to hop from lane to lane.
CREATE TABLE {schema.}tasks (
    id                     uuid        NOT NULL DEFAULT {schema.}tasklib_new_id(),
    name                   text        COLLATE "C" NOT NULL,
    queue                  text        COLLATE "C" NOT NULL DEFAULT 'default',
    state                  text        NOT NULL DEFAULT 'pending',
    args                   jsonb       NOT NULL DEFAULT '{}', -- in a flow: arguments that are results of other tasks
    kwargs                 jsonb       NOT NULL DEFAULT '{}',
    tags                   jsonb       NOT NULL DEFAULT '{}',
    required_capabilities  text[]      COLLATE "C" NOT NULL DEFAULT '{}',
    created_at             timestamptz NOT NULL DEFAULT now(),
    scheduled_at           timestamptz NOT NULL DEFAULT now(),
    -- Grows with every claim. Each write of a worker carries it, so a worker that lost its lease changes nothing.
    lease_token            bigint      NOT NULL DEFAULT 0,
    priority               integer     NOT NULL DEFAULT 0,
    max_retries            integer     NOT NULL DEFAULT 3,
    retry_count            integer     NOT NULL DEFAULT 0,
    crash_count            integer     NOT NULL DEFAULT 0,

    next_retry_at          timestamptz,
    started_at             timestamptz,
    completed_at           timestamptz,
    cancel_requested_at    timestamptz,
    locked_until           timestamptz,
    worker_id              text,
    timeout_seconds        integer,
    result                 jsonb,
    error                  text,
    progress               jsonb,
    history                jsonb,
    -- Of a durable task: the signals it was suspended for, an empty list if it sleeps; and how many were ever sent to it,
    -- by which a suspension notices one that it has not seen. Null for plain tasks.
    awaited_signals        text[]      COLLATE "C",
    signals_sent           bigint,
    -- The lease token of the last attempt whose beginning was put on record, and whether that one must not be repeated.
    begun_token            bigint,
    at_most_once           boolean,
    idempotency_key        text,
    idempotency_expires_at timestamptz,
    trace_context          jsonb,
    -- The id of the token the task was submitted with; null if it didn't come over HTTP.
    submitted_by           text,
    -- The schedule that the task is a run of, and the slot it runs for; a run that was asked for by hand has no slot.
    schedule               text        COLLATE "C",
    slot                   timestamptz,
    -- Of a task in a flow: the flow, the node it belongs to, the gate it waits at (it is not claimed before the gate
    -- opens), and the gates that count its end. All null for other tasks.
    flow                   uuid,
    node                   text        COLLATE "C",
    waits_for              uuid,
    reports_to             uuid[],
    -- Submissions of this name with this key become one task, while it is not claimed yet or while it is not finished.
    merge_key              text        COLLATE "C",
    merge_while            text,
    -- True once it stood in the way of a worker that doesn't serve its name: then it waits in a lane of its name.
    by_name                boolean,

    CONSTRAINT tasks_pkey PRIMARY KEY (id),
    CONSTRAINT tasks_name_not_empty CHECK (name <> ''),
    CONSTRAINT tasks_state_known
        CHECK (state IN ('pending', 'running', 'completed', 'failed', 'cancelled', 'dead_letter')),
    CONSTRAINT tasks_kwargs_is_object CHECK (jsonb_typeof(kwargs) = 'object'),
    CONSTRAINT tasks_tags_is_object CHECK (jsonb_typeof(tags) = 'object'),
    CONSTRAINT tasks_priority_in_range CHECK (priority BETWEEN -10 AND 100),
    -- Not so large that counting on overflows: one such row would stop the batch it is part of.
    CONSTRAINT tasks_counts_in_range
        CHECK (least(retry_count, max_retries, crash_count, lease_token) >= 0
               AND greatest(retry_count, crash_count) <= 1000000000 AND lease_token <= 1000000000000000),
    -- Moments that every client can read and count with; no infinity.
    CONSTRAINT tasks_times_in_range
        CHECK (least(next_retry_at, scheduled_at, started_at, completed_at, created_at, locked_until,
                     idempotency_expires_at, cancel_requested_at, slot) >= '0001-01-03 00:00:00+00'
               AND greatest(next_retry_at, scheduled_at, started_at, completed_at, created_at, locked_until,
                            idempotency_expires_at, cancel_requested_at, slot) < '9999-12-30 00:00:00+00'),
    CONSTRAINT tasks_capabilities_is_list CHECK (array_ndims(required_capabilities) = 1),
    CONSTRAINT tasks_timeout_positive CHECK (timeout_seconds > 0),
    CONSTRAINT tasks_running_has_lease
        CHECK ((state = 'running') = (worker_id IS NOT NULL AND locked_until IS NOT NULL)),
    CONSTRAINT tasks_merge_while_known
        CHECK ((merge_key IS NULL) = (merge_while IS NULL) AND merge_while IN ('pending', 'unfinished')),
    CONSTRAINT tasks_failed_has_retry_time CHECK (state <> 'failed' OR next_retry_at IS NOT NULL),
    CONSTRAINT tasks_terminal_has_end
        CHECK ((state IN ('completed', 'cancelled', 'dead_letter')) = (completed_at IS NOT NULL))
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
    (queue, {lane}, required_capabilities, priority, {due}, id)
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

-- The tasks of one flow, by node and in the order of submission.
CREATE INDEX tasks_flow ON {schema.}tasks (flow, node, id) WHERE flow IS NOT NULL;

-- One task for each merge key. A claim raises the lease token for good, so a task that was claimed once is never again in
-- this index as one that waits; and one that must be unique until it is finished is in it all that time. So no claim,
-- retry, release or rescue can collide. Only a replay brings a finished task back, and that clears the key.
CREATE UNIQUE INDEX tasks_merging ON {schema.}tasks (name, merge_key, merge_while)
    WHERE merge_key IS NOT NULL
      AND state IN ('pending', 'running', 'failed')
      AND (merge_while = 'unfinished' OR lease_token = 0);

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
       heartbeat_timeout_seconds, drain_requested_at, asleep, token_id, counted, reported_status
FROM {schema.}worker_registrations;

-- A commit that notifies takes a lock of the whole server, so eight busy producers would wait for each other: notify
-- only if a worker sleeps. A worker that falls asleep says so first, and then waits for the transactions that may not
-- have seen it (backends/postgres/sleep.py). They see it if they look after they began to write, which a snapshot from
-- before would prevent: so transactions in a stricter isolation always notify.
-- One tiny notification per statement; PostgreSQL folds those of a transaction into one at commit.
-- It runs as its owner: a producer needs no right to see the workers. The schema is written into it, because the
-- session that inserts may have any search_path.
DO $migration$
BEGIN
    EXECUTE format($function$
        CREATE FUNCTION %1$s.tasklib_wake() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
        BEGIN
            IF EXISTS (SELECT FROM %1$s.worker_registrations WHERE asleep)
               OR pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.<>) 'read committed' THEN
                PERFORM pg_catalog.pg_notify(pg_catalog.concat('tasklib_', TG_TABLE_SCHEMA), '');
            END IF;
            RETURN NULL;
        END
        $$
    $function$, (SELECT typnamespace::regnamespace FROM pg_type WHERE oid = pg_typeof(NULL::{schema.}tasks)));
END
$migration$;

CREATE TRIGGER tasks_wake AFTER INSERT ON {schema.}tasks
    FOR EACH STATEMENT EXECUTE FUNCTION {schema.}tasklib_wake();

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
    CONSTRAINT steps_kind_known CHECK (kind IN ('step', 'sleep', 'signal', 'timer', 'patch', 'deadline')),
    CONSTRAINT steps_result_is_object CHECK (jsonb_typeof(result) = 'object')
);

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
-- Returns 'sent', 'known' (one with this key was sent before), 'finished' (the task has ended), or null: no such task.
-- The task's row is locked before anything is decided. A suspension locks it too, so one of the two comes first: the
-- suspension finds `signals_sent` changed, or the signal finds the task suspended and makes it due.
DO $migration$
BEGIN
    EXECUTE format($function$
        CREATE FUNCTION %1$s.tasklib_signal(task_id uuid, signal text, payload jsonb DEFAULT 'null',
                                            key text DEFAULT NULL, sent_by text DEFAULT current_user)
        RETURNS text LANGUAGE sql VOLATILE AS $$
            WITH target AS (
                SELECT task.id, task.state IN ('pending', 'running', 'failed') AS is_open,
                       task.state = 'pending' AND $2 = ANY (task.awaited_signals)
                           AND COALESCE(task.next_retry_at, task.scheduled_at) > now() AS waits
                FROM %1$s.tasks AS task
                WHERE task.id = $1
                FOR NO KEY UPDATE
            ),
            sent AS (
                INSERT INTO %1$s.signals (task, name, payload, key, sent_by)
                SELECT id, $2, COALESCE($3, 'null'), $4, $5 FROM target WHERE is_open
                ON CONFLICT (task, key) DO NOTHING
                RETURNING task
            ),
            told AS (
                UPDATE %1$s.tasks AS task
                SET signals_sent = COALESCE(task.signals_sent, 0) + 1,
                    scheduled_at = CASE WHEN waits THEN now() ELSE task.scheduled_at END
                FROM target
                WHERE task.id = target.id AND EXISTS (SELECT FROM sent)
                RETURNING CASE WHEN waits THEN pg_notify('tasklib_' || (
                    SELECT nspname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
                    WHERE pg_class.oid = task.tableoid), '') END
            )
            SELECT CASE WHEN NOT is_open THEN 'finished' WHEN EXISTS (SELECT FROM told) THEN 'sent' ELSE 'known' END
            FROM target
        $$
    $function$, (SELECT typnamespace::regnamespace FROM pg_type WHERE oid = pg_typeof(NULL::{schema.}tasks)));
END
$migration$;

-- Steps and signals are deleted with their tasks, by whatever statement deletes those.
CREATE FUNCTION {schema.}tasklib_forget_steps() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('DELETE FROM %1$I.steps WHERE task IN (SELECT id FROM gone)', TG_TABLE_SCHEMA);
    EXECUTE format('DELETE FROM %1$I.signals WHERE task IN (SELECT id FROM gone)', TG_TABLE_SCHEMA);
    RETURN NULL;
END
$$;

CREATE TRIGGER tasks_forget_steps AFTER DELETE ON {schema.}tasks
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION {schema.}tasklib_forget_steps();

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

    CONSTRAINT flows_pkey PRIMARY KEY (id),
    CONSTRAINT flows_name_not_empty CHECK (name <> ''),
    CONSTRAINT flows_times_in_range
        CHECK (least(created_at, cancel_requested_at, finished_at) >= '0001-01-03 00:00:00+00'
               AND greatest(created_at, cancel_requested_at, finished_at) < '9999-12-30 00:00:00+00')
);
CREATE INDEX flows_unfinished ON {schema.}flows (id) WHERE finished_at IS NULL;
CREATE INDEX flows_finished ON {schema.}flows (finished_at) WHERE finished_at IS NOT NULL;

-- A gate: some tasks report their end to it, others wait for it. One gate serves all tasks that wait for the same
-- tasks, so 1 -> 100,000 -> 1 has two gates. It opens when its policy is satisfied, or fails when it can't be any more;
-- then the waiting tasks are cancelled. Each flow has one gate of the kind 'flow', which all its tasks report to.
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
-- A task that is replayed takes its report back: its counts are negative. A row without counts asks for a look at the
-- gate. They are counted in the order of their ids.
CREATE TABLE {schema.}arrivals (
    id        bigint  NOT NULL GENERATED ALWAYS AS IDENTITY,
    gate      uuid    NOT NULL,
    completed bigint  NOT NULL DEFAULT 0,
    failed    bigint  NOT NULL DEFAULT 0,

    node      text    COLLATE "C",
    culprit   uuid, -- one of those that failed

    CONSTRAINT arrivals_pkey PRIMARY KEY (id)
) WITH (
    -- Rows live for milliseconds.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000
);
CREATE INDEX arrivals_gate ON {schema.}arrivals (gate);

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

-- Queues and names whose tasks are not claimed for now.
CREATE TABLE {schema.}pauses (
    kind      text        NOT NULL,
    value     text        COLLATE "C" NOT NULL,
    paused_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pauses_pkey PRIMARY KEY (kind, value),
    CONSTRAINT pauses_kind_known CHECK (kind IN ('queue', 'name')),
    CONSTRAINT pauses_time_in_range
        CHECK (paused_at >= '0001-01-03 00:00:00+00' AND paused_at < '9999-12-30 00:00:00+00')
);

-- What may wait in a queue before submissions to it are refused, by programs that ask for it and by the server.
CREATE TABLE {schema.}backpressure (
    queue       text        COLLATE "C" NOT NULL,
    changed_at  timestamptz NOT NULL DEFAULT now(),
    max_wait    double precision,
    max_pending bigint,
    CONSTRAINT backpressure_pkey PRIMARY KEY (queue),
    CONSTRAINT backpressure_in_range CHECK (max_wait > 0 AND max_wait <= 2147483647 AND max_pending > 0)
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
    CONSTRAINT stats_deltas_pkey PRIMARY KEY (id)
);

-- The same by time: spans of 60, 600 and 3600 seconds for charts. Old rows are merged into longer spans, then deleted.
-- Span 0 is the total since the beginning, without names and queues; with the deltas it is exact.
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
    CONSTRAINT stats_pkey PRIMARY KEY (span, start, name, queue, level, outcome, reason)
) WITH (fillfactor = 70);

-- How deep each queue was at each level, as the leader counted it last in each minute.
CREATE TABLE {schema.}depths (
    minute             timestamptz      NOT NULL,
    queue              text             COLLATE "C" NOT NULL,
    level              text             COLLATE "C" NOT NULL,
    depth              bigint           NOT NULL,
    capped             boolean          NOT NULL,
    oldest_age_seconds double precision NOT NULL,
    CONSTRAINT depths_pkey PRIMARY KEY (minute, queue, level)
);

-- The sum of two histograms.
CREATE FUNCTION {schema.}tasklib_added(one bigint[], other bigint[]) RETURNS bigint[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT COALESCE(array_agg(COALESCE(a, 0) + COALESCE(b, 0) ORDER BY place), '{}')
    FROM unnest(one, other) WITH ORDINALITY AS both_of (a, b, place)
$$;

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
        CHECK (cardinality(roles) > 0 AND roles <@ '{viewer,submitter,worker,operator,admin}'::text[]),
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

CREATE TRIGGER audit_keep BEFORE UPDATE OR DELETE OR TRUNCATE ON {schema.}audit
    FOR EACH STATEMENT EXECUTE FUNCTION {schema.}tasklib_keep_audit();
