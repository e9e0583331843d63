-- Waiting raises tasks to medium, then to high, oldest first: so a lane is up to three bands of one height each, and
-- comparing their heads is enough. The band of the lane's head has the same head; only a lane with raised tasks costs
-- a probe for where its next band begins. A band starts behind (since, since_id) and ends with `until`.
ready AS (
    SELECT queue, name, required_capabilities, priority, since, since_id, until, effective_priority
    FROM heads
    CROSS JOIN {include thresholds}
    CROSS JOIN LATERAL (SELECT
        now() - make_interval(secs => high_after + CASE WHEN priority < 0 THEN medium_after ELSE 0 END) AS high_since,
        now() - make_interval(secs => medium_after) AS medium_since
    ) AS raised
    CROSS JOIN LATERAL (
        SELECT '-infinity'::timestamptz AS above, high_since AS until, 100 AS effective_priority WHERE priority < 100
        UNION ALL
        SELECT high_since, medium_since, 0 WHERE priority < 0
        UNION ALL
        SELECT CASE WHEN priority < 0 THEN medium_since WHEN priority < 100 THEN high_since ELSE '-infinity' END,
               now(), priority
    ) AS band
    CROSS JOIN LATERAL (SELECT
        greatest(above, after_due) AS since,
        CASE WHEN after_due > above THEN after_id ELSE 'ffffffff-ffff-ffff-ffff-ffffffffffff' END AS since_id
    ) AS beginning
    CROSS JOIN LATERAL (
        SELECT heads.due AS head WHERE heads.due > above AND heads.due <= until
        UNION ALL
        (SELECT {due}
         FROM {schema.}tasks AS task
         WHERE heads.due <= above
           AND task.state IN ('pending', 'failed') AND task.waits_for IS NULL
           AND task.queue = heads.queue
           AND task.name = heads.name
           AND task.required_capabilities = heads.required_capabilities
           AND task.priority = heads.priority
           AND ({due}, id) > (since, since_id)
           AND {due} <= until
         ORDER BY {due}, id
         LIMIT 1)
    ) AS first
    WHERE due <= now()
    ORDER BY effective_priority DESC, head
),
-- Rows are locked one by one as the outer limit asks for them, so a claim locks what it takes and no more.
taken AS (
    SELECT offered.id, ready.effective_priority
    FROM ready
    CROSS JOIN LATERAL (
        SELECT id
        FROM {schema.}tasks AS task
        WHERE task.state IN ('pending', 'failed') AND task.waits_for IS NULL
          AND task.queue = ready.queue
          AND task.name = ready.name
          AND task.required_capabilities = ready.required_capabilities
          AND task.priority = ready.priority
          AND ({due}, id) > (ready.since, ready.since_id)
          AND {due} <= ready.until
        ORDER BY {due}, id
        LIMIT %(limit)s
        FOR UPDATE SKIP LOCKED
    ) AS offered
    LIMIT %(limit)s
)
UPDATE {schema.}tasks AS task
{include lease},
    -- In the order in which the worker begins them: by (started_at, due, id). See held.sql.
    started_at = now() + (100 - taken.effective_priority) * interval '1 microsecond'
FROM taken
WHERE task.id = taken.id
RETURNING {include leased}, taken.effective_priority
