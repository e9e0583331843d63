-- A flow, its gates and its tasks, all in one. The ids were made by the client, so that a submission whose answer was lost
-- can be sent again. A gate that waits for nothing is open, and a flow without tasks is finished.
WITH flow AS (
    INSERT INTO {schema.}flows (id, name, submitted_by, parent, finished_at)
    VALUES (CAST(CAST(%(id)s AS text) AS uuid), CAST(%(name)s AS text), CAST(%(submitted_by)s AS text),
            CAST(CAST(%(parent)s AS text) AS uuid), CASE WHEN CAST(CAST(%(is_empty)s AS text) AS boolean) THEN now() END)
    ON CONFLICT (id) DO NOTHING
),
gates AS (
    INSERT INTO {schema.}gates (id, flow, kind, policy, nodes, waiters, expected, sealed, opened_at, released)
    SELECT gate.id, CAST(CAST(%(id)s AS text) AS uuid), kind, policy, nodes, waiters, expected, sealed,
           CASE WHEN is_open THEN now() END, is_open
    FROM jsonb_to_recordset(CAST(CAST(%(gates)s AS text) AS jsonb)) AS gate (
        id uuid, kind text, policy jsonb, nodes text[], waiters text[], expected bigint, sealed boolean, is_open boolean)
    ON CONFLICT (id) DO NOTHING
)
INSERT INTO {schema.}tasks (
    id, name, queue, args, kwargs, scheduled_at, max_retries, timeout_seconds, priority, tags, required_capabilities,
    trace_context, submitted_by, lane, flow, node, waits_for, reports_to)
SELECT id, name, queue, args, kwargs, GREATEST(now(), scheduled_at, now() + make_interval(secs => delay_seconds)),
       max_retries, timeout_seconds, priority, tags, required_capabilities, trace_context, submitted_by,
       COALESCE(lane, ''), flow, node, waits_for, reports_to
FROM jsonb_to_recordset(CAST(CAST(%(tasks)s AS text) AS jsonb)) AS task (
    {include new_task}, flow uuid, node text, waits_for uuid, reports_to uuid[])
ON CONFLICT (id) DO NOTHING
