-- Attempts that lost their worker: its lease ran out, or it is dead. State, holder and expiry are checked in this one
-- statement, on the locked row, so a task that was completed or extended meanwhile is left alone. A lost attempt uses no
-- retry. It counts as a crash if its function may have begun; what has not begun goes back as it was before the claim.
-- A task is given up only if the beginning of its lost attempt is on record: as poison, or because it runs at most once.
WITH {include leader},
concerned AS (
    SELECT DISTINCT worker_id
    FROM {schema.}tasks AS task
    WHERE EXISTS (SELECT FROM leader)
      AND state = 'running'
      AND (locked_until < now()
           OR EXISTS (SELECT FROM {schema.}workers
                      WHERE workers.id = task.worker_id AND reported_status = 'dead'))
),
{include held},
attempt AS (
    SELECT * FROM (
        SELECT task.id,
               cancel_requested_at IS NOT NULL AS cancelled,
               {include may_have_begun} AS begun,
               false AS known,
               cancel_requested_at IS NOT NULL
                   OR {include begun} AND (at_most_once IS TRUE OR crash_count + 1 >= %(crash_limit)s) AS ends,
               cancel_requested_at IS NULL AND {include begun} AND at_most_once IS NOT TRUE
                   AND crash_count + 1 >= %(crash_limit)s AS poison,
               now() AS retry_at,
               'lost' AS outcome,
               format('worker %%s was lost in attempt %%s%%s', worker_id, retry_count + crash_count + 1,
                      CASE WHEN {include begun} AND at_most_once IS TRUE
                           THEN ', after it had begun. The task runs at most once, so it is not retried' END) AS error
        FROM held
        JOIN {schema.}tasks AS task ON task.id = ANY (ARRAY[held.id])
        WHERE {still_running}
          AND (locked_until < now()
               OR EXISTS (SELECT FROM {schema.}workers
                          WHERE workers.id = task.worker_id AND reported_status = 'dead'))
        -- The last first: then the places of the others are the same in the next batch.
        ORDER BY held.place DESC
        LIMIT %(limit)s
        FOR UPDATE OF task SKIP LOCKED
    ) AS locked
),
{include taken_back}
