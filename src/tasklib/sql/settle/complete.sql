-- Record results. Guarded by state, token and holder: a row that isn't updated belongs to another attempt by now.
WITH written AS (
    UPDATE {schema.}tasks AS task
    {include completed}
    FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[], %(results)s::text[]) AS done (id, token, result)
    WHERE task.id = done.id
      AND {still_running}
      AND task.lease_token = done.token
      AND task.worker_id = %(worker)s
    RETURNING task.id
)
{include complete_answer}
