-- Record results. Guarded by state, token and holder: a row that isn't updated belongs to another attempt by now.
WITH written AS (
    UPDATE {schema.}tasks AS task
    {include completed}
    -- Side by side in the list of columns, and not in FROM: there each array would be copied into a table of its own first.
    FROM (SELECT unnest(%(ids)s::uuid[]) AS id, unnest(%(tokens)s::bigint[]) AS token,
                 unnest(%(results)s::text[]) AS result, clock_timestamp() AS moment) AS done
    WHERE task.id BETWEEN done.id AND done.id
      AND {still_running}
      AND task.lease_token = done.token
      AND task.worker_id = %(worker)s
    RETURNING task.id
)
{include complete_answer}
FROM written
