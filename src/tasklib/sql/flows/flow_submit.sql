-- A flow, its gates and its tasks, all in one. The ids were made by the client, so that a submission whose answer was lost
-- can be sent again. A gate that waits for nothing is open, and a flow without tasks is finished.
WITH flow AS (
    INSERT INTO {schema.}flows (id, name, submitted_by, parent, first_task, finished_at)
    VALUES (CAST(CAST(%(id)s AS text) AS uuid), CAST(%(name)s AS text), CAST(%(submitted_by)s AS text),
            CAST(CAST(%(parent)s AS text) AS uuid), CAST(CAST(%(first_task)s AS text) AS uuid),
            CASE WHEN CAST(CAST(%(is_empty)s AS text) AS boolean) THEN now() END)
    ON CONFLICT (id) DO NOTHING
),
gates AS (
    INSERT INTO {schema.}gates (id, flow, kind, policy, nodes, waiters, expected, sealed, opened_at, released)
    SELECT gate.id, CAST(CAST(%(id)s AS text) AS uuid), kind, policy, nodes, waiters, expected, sealed,
           CASE WHEN is_open THEN now() END, is_open
    FROM jsonb_to_recordset(CAST(CAST(%(gates)s AS text) AS jsonb)) AS gate (
        id uuid, kind text, policy jsonb, nodes text[], waiters text[], expected bigint, sealed boolean, is_open boolean)
    ON CONFLICT (id) DO NOTHING
),
submitted AS (
    INSERT INTO {schema.}tasks (
        {include submitted_columns}, args, flow, node, waits_for, reports_to)
    SELECT {include submitted_values},
           args, flow, node, waits_for, reports_to
    FROM jsonb_to_recordset(CAST(CAST(%(tasks)s AS text) AS jsonb)) AS task (
        {include new_task}, args jsonb, flow uuid, node text, waits_for uuid, reports_to uuid[])
    ON CONFLICT (id) DO NOTHING
)
SELECT true
