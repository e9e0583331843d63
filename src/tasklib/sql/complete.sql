-- Record results. Guarded by state, token and holder: a row that isn't written belongs to somebody else by now.
WITH written AS (
    UPDATE {schema.}tasks AS task
    SET state = 'completed',
        result = done.result::jsonb,
        error = NULL,
        completed_at = now(),
        next_retry_at = NULL,
        worker_id = NULL,
        locked_until = NULL
    FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[], %(results)s::text[]) AS done (id, token, result)
    WHERE task.id = done.id
      AND {still_running}
      AND task.lease_token = done.token
      AND task.worker_id = %(worker)s
    RETURNING task.id
)
-- Which were ours; null says all, so that the usual answer is short.
SELECT CASE WHEN count(*) < cardinality(%(ids)s::uuid[]) THEN COALESCE(array_agg(id::text), '{}') END FROM written
