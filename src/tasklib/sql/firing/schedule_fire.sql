-- Make the tasks of due slots and move their schedules on, all in one. Three guards, each enough alone: the term; the
-- slots and the revision that the decision was made from; and that a slot has one task, ever.
WITH {include leader},
offer AS (
    SELECT *
    FROM jsonb_to_recordset(%(offers)s::text::jsonb) AS offer (
        name text, revision bigint, slot timestamptz, waiting timestamptz, next_slot timestamptz,
        last_slot timestamptz, waiting_next timestamptz, runs jsonb, skips jsonb, cancel_running boolean,
        pause_note text)
),
accepted AS (
    SELECT * FROM (
        SELECT offer.*, schedule.task, schedule.template, schedule.last_slot AS previous_slot
        FROM {schema.}schedules AS schedule
        JOIN offer ON offer.name = schedule.name
        WHERE EXISTS (SELECT FROM leader)
          AND schedule.paused_at IS NULL AND schedule.retired_at IS NULL
          AND schedule.revision = offer.revision
          AND schedule.next_slot IS NOT DISTINCT FROM offer.slot
          AND schedule.waiting_slot IS NOT DISTINCT FROM offer.waiting
          -- It may have been decided ahead of its time.
          AND (offer.last_slot <= now()) IS NOT FALSE
        ORDER BY schedule.name
        FOR UPDATE OF schedule
    ) AS locked
),
inserted AS (
    INSERT INTO {schema.}tasks (
        id, name, queue, kwargs, scheduled_at, max_retries, timeout_seconds, priority, tags, required_capabilities,
        payload_version, schedule, slot)
    SELECT run.id, accepted.task, template ->> 'queue', template -> 'kwargs', GREATEST(now(), run.run_at),
           (template ->> 'max_retries')::int, (template ->> 'timeout_seconds')::int, (template ->> 'priority')::int,
           template -> 'tags', ARRAY(SELECT jsonb_array_elements_text(template -> 'required_capabilities')),
           (template ->> 'payload_version')::smallint, accepted.name, run.slot
    FROM accepted
    CROSS JOIN LATERAL jsonb_to_recordset(accepted.runs) AS run (id uuid, slot timestamptz, run_at timestamptz)
    ORDER BY accepted.name, run.slot
    ON CONFLICT (schedule, slot) WHERE schedule IS NOT NULL DO NOTHING
    RETURNING id, name, schedule, slot
),
skipped AS (
    SELECT accepted.name, accepted.task, accepted.previous_slot, skip.*
    FROM accepted
    CROSS JOIN LATERAL jsonb_to_recordset(accepted.skips) AS skip (
        reason text, count bigint, first_slot timestamptz, last_slot timestamptz, follows boolean)
),
-- Added up once for all schedules, not once for each.
made AS (
    SELECT schedule, count(*) AS number, (array_agg(id ORDER BY slot DESC))[1] AS newest FROM inserted GROUP BY schedule
),
lost AS (
    SELECT name, sum(count) AS number FROM skipped GROUP BY name
),
advanced AS (
    UPDATE {schema.}schedules AS schedule
    SET next_slot = accepted.next_slot,
        last_slot = GREATEST(schedule.last_slot, accepted.last_slot),
        waiting_slot = accepted.waiting_next,
        last_task = COALESCE(made.newest, schedule.last_task),
        fired = schedule.fired + COALESCE(made.number, 0),
        skipped = schedule.skipped + COALESCE(lost.number, 0),
        paused_at = (SELECT CASE WHEN accepted.pause_note IS NOT NULL THEN now() END),
        pause_note = accepted.pause_note,
        paused_by = CASE WHEN accepted.pause_note IS NOT NULL THEN 'tasklib' END,
        revision = schedule.revision + CASE WHEN accepted.pause_note IS NOT NULL THEN 1 ELSE 0 END
    FROM accepted
    LEFT JOIN made ON made.schedule = accepted.name
    LEFT JOIN lost ON lost.name = accepted.name
    WHERE schedule.name = accepted.name
    RETURNING schedule.name
),
{include schedule_skips_recorded},
-- An earlier run that is not finished makes way. The new one is not visible to this statement.
unwanted AS (
    SELECT * FROM (
        SELECT task.id
        FROM {schema.}tasks AS task
        JOIN accepted ON accepted.name = task.schedule AND accepted.cancel_running
        WHERE task.state IN ('pending', 'running', 'failed')
          AND (task.state <> 'running' OR task.cancel_requested_at IS NULL)
        ORDER BY task.id
        FOR UPDATE OF task
    ) AS locked
),
changed AS (
    UPDATE {schema.}tasks AS task
    SET {include cancelled}
    FROM unwanted
    WHERE task.id = ANY (ARRAY[unwanted.id])
    RETURNING task.id, task.node, task.reports_to, task.name, task.queue, task.priority, task.state AS outcome,
              '' AS reason
),
-- Runs of a backfill that goes one by one are tasks of a flow.
ended AS (
    SELECT id, outcome AS state, node, reports_to FROM changed
),
{include reported},
{include counted},
told AS (
    SELECT count(CASE WHEN outcome = 'running' THEN {include wake} END) AS number FROM changed
),
slots_counted AS (
    INSERT INTO {schema.}stats_deltas (name, outcome, reason, count)
    SELECT name, 'slot_fired', '', count(*) FROM inserted GROUP BY name
    UNION ALL
    SELECT task, 'slot_skipped', reason, sum(count) FROM skipped GROUP BY task, reason
),
-- How late slots were fired, in the buckets of all histograms.
lateness AS (
    SELECT width_bucket(seconds, %(bounds)s::float8[]) AS bucket, count(*) AS number, sum(seconds) AS seconds
    FROM (SELECT extract(epoch FROM now() - slot)::float8 AS seconds FROM inserted) AS each_slot
    GROUP BY 1
),
lateness_counted AS (
    INSERT INTO {schema.}stats_deltas (outcome, count, waited, waits)
    SELECT 'slot_lateness', sum(number), sum(lateness.seconds),
           array_agg(COALESCE(number, 0) ORDER BY place)
    FROM generate_series(0, cardinality(%(bounds)s::float8[])) AS place
    LEFT JOIN lateness ON bucket = place
    HAVING count(bucket) > 0
)
SELECT advanced.name, inserted.id::text, inserted.slot
FROM advanced
LEFT JOIN inserted ON inserted.schedule = advanced.name
WHERE (SELECT number FROM told) >= 0 -- workers are told of what they have to stop
