-- Waiting raises tasks to medium, then to high, oldest first: so a lane is up to three bands of one height each. The
-- band of the lane's head has the same head; only a lane with raised tasks costs a probe for where its next band begins.
-- A band starts behind (since, since_id) and ends with `until`.
ready AS (
    SELECT queue, lane, required_capabilities, priority, since, since_id, until, effective_priority
    FROM heads AS lane
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
    WHERE due <= until
      AND (due > above OR EXISTS (
          SELECT FROM {schema.}tasks AS task
          WHERE {include in_lane}
            AND ({due}, id) > (since, since_id)
            AND {due} <= until
          ORDER BY {due}, id
          LIMIT 1))
),
groups AS (
    SELECT effective_priority, count(*) AS bands FROM ready GROUP BY effective_priority ORDER BY effective_priority DESC
),
-- Rows are locked one by one as the outer limit asks for them, so a claim locks what it takes and no more.
taken AS (
    SELECT offered.ctid, groups.effective_priority,
           -- In the order in which the worker begins them: by (started_at, due, id). See held.sql.
           now() + (100 - groups.effective_priority) * interval '1 microsecond' AS started_at
    FROM groups
    CROSS JOIN LATERAL (
        -- Several bands of one height are merged: the first of each, in order, and only then locked.
        SELECT ctid
        FROM (
            SELECT task.ctid
            FROM (
                SELECT candidate.*
                FROM ready AS lane
                CROSS JOIN LATERAL (
                    SELECT task.ctid, id, {due} AS due
                    FROM {schema.}tasks AS task
                    WHERE {include in_lane}
                      AND ({due}, id) > (lane.since, lane.since_id)
                      AND {due} <= lane.until
                      AND {include our_name}
                    ORDER BY {due}, id
                    LIMIT 4 * %(limit)s + 100
                ) AS candidate
                WHERE groups.bands > 1 AND lane.effective_priority = groups.effective_priority
            ) AS candidate
            JOIN {schema.}tasks AS task ON task.ctid = candidate.ctid
            -- Unless it changed meanwhile. Written so that no index of waiting rows seems to help.
            WHERE COALESCE(task.state, '') IN ('pending', 'failed') AND task.waits_for IS NULL AND {due} = candidate.due
            ORDER BY candidate.due, candidate.id
            LIMIT %(limit)s
            FOR UPDATE OF task SKIP LOCKED
        ) AS merged
        UNION ALL
        -- One band is taken as it is. Of several, what is behind the candidates, if other claims have locked those.
        SELECT rest.ctid
        FROM ready AS lane
        CROSS JOIN LATERAL (
            SELECT lane.since, lane.since_id WHERE groups.bands = 1
            UNION ALL
            (SELECT {due}, id
             FROM {schema.}tasks AS task
             WHERE groups.bands > 1
               AND {include in_lane}
               AND ({due}, id) > (lane.since, lane.since_id)
               AND {due} <= lane.until
               AND {include our_name}
             ORDER BY {due}, id
             OFFSET 4 * %(limit)s + 99
             LIMIT 1)
        ) AS start (since, since_id)
        CROSS JOIN LATERAL (
            SELECT task.ctid
            FROM {schema.}tasks AS task
            WHERE {include in_lane}
              AND ({due}, id) > (start.since, start.since_id)
              AND {due} <= lane.until
              AND {include our_name}
            ORDER BY {due}, id
            LIMIT %(limit)s
            FOR UPDATE SKIP LOCKED
        ) AS rest
        WHERE lane.effective_priority = groups.effective_priority
    ) AS offered
    LIMIT %(limit)s
)
UPDATE {schema.}tasks AS task
{include lease},
    started_at = taken.started_at
FROM taken
-- Where each row is, because it is locked and stays there: no look at the primary key. A row that another transaction
-- has moved since this statement began is left to the next claim.
WHERE task.ctid = taken.ctid
RETURNING {include leased}, taken.effective_priority, task.lane
