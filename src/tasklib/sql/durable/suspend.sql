-- Durable tasks give their slots back and wait for a moment, for signals, or for both. That uses no retry. Having got so
-- far, a task is no poison, so its crashes are forgotten: one that lives for a year survives any number of them.
WITH given AS (
    SELECT * FROM (
        SELECT task.id, given.until, given.signals, given.kwargs, given.version,
               -- A signal came after the function had looked: it runs again at once.
               cardinality(given.signals) > 0 AND task.signals_sent IS DISTINCT FROM given.seen AS is_signalled
        FROM (SELECT id, token, until, signals::text[] AS signals, seen, kwargs, version
              FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[], %(untils)s::timestamptz[], %(signals)s::text[],
                          %(seen)s::bigint[], %(kwargs)s::text[], %(versions)s::smallint[])
                       AS given (id, token, until, signals, seen, kwargs, version)) AS given
        JOIN {schema.}tasks AS task ON task.id = ANY (ARRAY[given.id])
        WHERE {include lock_held}
    ) AS locked
),
-- What continues as new begins with nothing on record.
forgotten AS (
    DELETE FROM {schema.}steps AS step
    USING given
    WHERE step.task = given.id AND given.kwargs IS NOT NULL
),
ended AS (
    UPDATE {schema.}tasks AS task
    SET state = CASE WHEN cancel_requested_at IS NOT NULL THEN 'cancelled' ELSE 'pending' END,
        completed_at = (SELECT CASE WHEN cancel_requested_at IS NOT NULL THEN now() END),
        -- Due is computed from `next_retry_at` first.
        next_retry_at = NULL,
        -- The latest moment that can be stored stands for ever.
        scheduled_at = (SELECT CASE WHEN is_signalled THEN now() ELSE COALESCE(given.until, '9999-12-29 00:00:00+00') END),
        awaited_signals = given.signals,
        kwargs = COALESCE(given.kwargs::jsonb, task.kwargs),
        payload_version = CASE WHEN given.kwargs IS NULL THEN task.payload_version ELSE given.version END,
        -- New arguments are of the version that this worker's code writes; workers with older code must not get them.
        required_capabilities = (SELECT CASE
            WHEN given.kwargs IS NULL OR given.version IS NOT DISTINCT FROM task.payload_version
            THEN task.required_capabilities
            ELSE ARRAY(SELECT required FROM unnest(task.required_capabilities) AS required
                       WHERE required IS DISTINCT FROM concat(task.name, '@', task.payload_version)
                       UNION SELECT concat(task.name, '@', given.version) WHERE given.version IS NOT NULL
                       ORDER BY 1) END),
        crash_count = 0,
        started_at = NULL,
        worker_id = NULL,
        locked_until = NULL
    FROM given
    WHERE task.id = ANY (ARRAY[given.id])
    RETURNING task.id, task.state, task.node, task.reports_to
),
{include reported},
-- What is suspended holds nothing, not even a serial queue.
freed AS (
    DELETE FROM {schema.}places AS place USING ended WHERE place.task = ended.id
)
SELECT id::text, state FROM ended
