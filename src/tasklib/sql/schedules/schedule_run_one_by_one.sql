-- Runs of slots that have passed, one after the other: a flow in which each task waits at a gate for the one before it,
-- however that ends. A slot that has got its task meanwhile is a unique violation, and then nothing is done: a chain has
-- no missing link.
WITH seen AS (
    SELECT id FROM {schema.}tasks WHERE schedule = %(name)s AND state IN ('pending', 'running', 'failed')
),
-- The first one waits for the runs of the schedule that have not begun. One that is running can't be waited for: the
-- worker that claimed it was told then which gates to report to.
unfinished AS MATERIALIZED (
    SELECT id FROM {schema.}tasks
    WHERE schedule = %(name)s AND state IN ('pending', 'failed')
    ORDER BY id
    FOR UPDATE
),
flow AS (
    INSERT INTO {schema.}flows (id, name, submitted_by)
    SELECT %(flow)s::text::uuid, %(flow_name)s::text, %(submitted_by)s::text
    FROM {schema.}schedules
    WHERE name = %(name)s AND (SELECT count(*) FROM seen) = (SELECT count(*) FROM unfinished)
    RETURNING id
),
joined AS (
    UPDATE {schema.}tasks AS task
    SET reports_to = array_append(COALESCE(task.reports_to, '{}'), %(first_gate)s::text::uuid)
    FROM unfinished
    WHERE task.id = ANY (ARRAY[unfinished.id]) AND EXISTS (SELECT FROM flow)
    RETURNING task.id
),
gates AS (
    INSERT INTO {schema.}gates (id, flow, kind, policy, nodes, waiters, expected, opened_at, released)
    SELECT gate.id, flow.id, kind, policy, nodes, waiters, wanted.count, CASE WHEN wanted.count = 0 THEN now() END,
           wanted.count = 0
    FROM flow
    CROSS JOIN jsonb_to_recordset(%(gates)s::text::jsonb) AS gate (
        id uuid, kind text, policy jsonb, nodes text[], waiters text[], expected bigint)
    CROSS JOIN LATERAL (
        SELECT CASE WHEN gate.id = %(first_gate)s::text::uuid THEN (SELECT count(*) FROM joined)
                    ELSE gate.expected END AS count
    ) AS wanted
),
changed AS (
    INSERT INTO {schema.}tasks (
        id, name, queue, kwargs, max_retries, timeout_seconds, priority, tags, required_capabilities,
        payload_version, schedule, slot, submitted_by, flow, node, waits_for, reports_to)
    SELECT run.id, schedule.task, template ->> 'queue', template -> 'kwargs', (template ->> 'max_retries')::int,
           (template ->> 'timeout_seconds')::int, %(priority)s, template -> 'tags',
           ARRAY(SELECT jsonb_array_elements_text(template -> 'required_capabilities')),
           (template ->> 'payload_version')::smallint, schedule.name, run.slot,
           %(submitted_by)s::text, flow.id, run.node,
           CASE WHEN run.gate <> %(first_gate)s::text::uuid OR EXISTS (SELECT FROM joined) THEN run.gate END,
           run.reports_to
    FROM flow
    JOIN {schema.}schedules AS schedule ON schedule.name = %(name)s
    CROSS JOIN jsonb_to_recordset(%(runs)s::text::jsonb) AS run (
        id uuid, slot timestamptz, node text, gate uuid, reports_to uuid[])
    ORDER BY run.slot
    RETURNING id, slot
),
{include audited_batch}
SELECT id::text FROM changed ORDER BY slot
