-- Attempts well past their timeout whose worker lives but doesn't act: it is wedged. Whatever that worker still says
-- about them is stale. If the beginning of an attempt is on record, its function ran out of time, which uses a retry.
-- If not, the function may have stood behind the one that wedged the worker, so it can't be blamed: as with a lost
-- worker, it counts as a crash if it may have begun, and then the next attempt's beginning will be on record.
WITH {include leader},
concerned AS (
    SELECT DISTINCT worker_id
    FROM {schema.}tasks
    WHERE EXISTS (SELECT FROM leader)
      AND state = 'running'
      AND started_at + make_interval(secs => timeout_seconds + %(grace)s) < now()
),
{include held},
attempt AS (
    SELECT * FROM (
        SELECT task.id,
               cancel_requested_at IS NOT NULL AS cancelled,
               {include may_have_begun} AS begun,
               {include begun} AS known,
               cancel_requested_at IS NOT NULL
                   OR {include begun} AND (at_most_once IS TRUE OR retry_count >= max_retries) AS ends,
               false AS poison,
               now() + make_interval(secs => %(delay)s) AS retry_at,
               CASE WHEN {include begun} THEN 'timeout' ELSE 'lost' END AS outcome,
               format('TaskTimeout: the attempt ran longer than its timeout of %%s s, and worker %%s did not end it',
                      timeout_seconds, worker_id) AS error
        FROM held
        JOIN {schema.}tasks AS task ON task.id = ANY (ARRAY[held.id])
        WHERE {still_running}
          AND started_at + make_interval(secs => timeout_seconds + %(grace)s) < now()
        ORDER BY held.place DESC
        LIMIT %(limit)s
        FOR UPDATE OF task SKIP LOCKED
    ) AS locked
),
{include taken_back}
