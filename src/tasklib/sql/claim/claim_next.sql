-- Lease the next task of one lane, for an idle worker that was notified: it guesses that the new task is in the lane it
-- served last. That takes little more than half as long as a scan of all lanes, which follows in any case.
WITH {include paused}
UPDATE {schema.}tasks AS task
{include lease},
    started_at = now()
FROM {include thresholds}
CROSS JOIN LATERAL (SELECT
    now() - make_interval(secs => high_after) AS high_since,
    now() - make_interval(secs => high_after + medium_after) AS low_high_since,
    now() - make_interval(secs => medium_after) AS medium_since
    OFFSET 0 -- as columns of their own: Citus takes no now() in RETURNING
) AS raised
WHERE task.id = (
    SELECT id
    FROM {schema.}tasks AS task
    WHERE task.state IN ('pending', 'failed') AND task.waits_for IS NULL
      AND task.queue = %(queue)s
      AND task.lane = %(lane)s
      AND task.required_capabilities = %(required_capabilities)s::text[]
      AND task.priority = %(priority)s
      AND {due} <= now()
      AND {include our_name}
      AND %(queue)s <> ALL ((SELECT queues FROM paused)::text[])
    ORDER BY {due}, id
    LIMIT 1
    FOR UPDATE SKIP LOCKED
)
RETURNING {include leased},
    CASE WHEN {due} <= CASE WHEN task.priority < 0 THEN low_high_since ELSE high_since END
             THEN greatest(task.priority, 100)
         WHEN {due} <= medium_since THEN greatest(task.priority, 0)
         ELSE task.priority END,
    task.lane
