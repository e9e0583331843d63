-- Tasks that a running task adds, by the attempt that holds it. Its row is locked until they are committed, so they come
-- before its end. Their ids are made of its id and their keys: what is there already is not added again.
WITH parent AS MATERIALIZED (
    SELECT task.flow, task.reports_to, task.submitted_by, task.trace_context,
           task.cancel_requested_at IS NOT NULL AS is_cancelled,
           -- What a spawned task spawns belongs to the same group.
           CASE WHEN task.node LIKE '%%:spawned' THEN task.node ELSE task.node || ':spawned' END AS node
    FROM {schema.}tasks AS task
    WHERE task.id = %(id)s::text::uuid
      AND {still_running}
      AND task.lease_token = %(token)s::bigint
      AND task.worker_id = %(worker)s
    FOR SHARE
),
-- A cancel of the flow comes before this lock, and is seen here; or after it, and sees the new tasks.
flow AS MATERIALIZED (
    SELECT flow.cancel_requested_at IS NOT NULL AS is_cancelled
    FROM {schema.}flows AS flow
    WHERE flow.id = (SELECT parent.flow FROM parent)
    FOR SHARE
),
adding AS MATERIALIZED (
    SELECT parent.*,
           -- Of the gates that the parent reports to: that of the flow, and those that wait for what it spawns.
           (SELECT array_agg(gate.id ORDER BY gate.id) FROM {schema.}gates AS gate
            WHERE gate.id = ANY (parent.reports_to) AND (gate.kind = 'flow' OR parent.node = ANY (gate.nodes))) AS gates
    FROM parent
    WHERE NOT parent.is_cancelled AND NOT EXISTS (SELECT FROM flow WHERE flow.is_cancelled)
),
added AS (
    INSERT INTO {schema.}tasks (
        {include submitted_columns}, args, flow, node, reports_to)
    SELECT task.id, task.name, task.queue, task.kwargs,
           GREATEST(now(), task.scheduled_at, now() + make_interval(secs => task.delay_seconds)),
           task.max_retries, task.timeout_seconds, task.priority, task.tags, task.required_capabilities,
           COALESCE(task.trace_context, adding.trace_context), COALESCE(task.submitted_by, adding.submitted_by),
           COALESCE(task.lane, ''), task.payload_version, task.key_id, COALESCE(task.args, '{}'),
           adding.flow, adding.node, adding.gates
    FROM adding
    CROSS JOIN jsonb_to_recordset(%(tasks)s::text::jsonb) AS task (
        {include new_task}, args jsonb)
    ORDER BY task.id
    ON CONFLICT (id) DO NOTHING
    RETURNING reports_to
),
expected AS (
    INSERT INTO {schema.}arrivals (gate, expected)
    SELECT told.gate, count(*)
    FROM added
    CROSS JOIN LATERAL unnest(reports_to) AS told (gate)
    GROUP BY told.gate
)
-- No row: the task is another attempt's by now.
SELECT (SELECT count(*) FROM added), NOT EXISTS (SELECT FROM adding) FROM parent
