-- Due tasks at the heads of shared lanes whose names this worker doesn't serve, or that are paused, move into lanes of
-- their names: each is read past once and not by every claim. Nothing else of them changes, and nothing that is not
-- waiting is touched. Their order is that of the index, as before.
WITH RECURSIVE {include from_the_beginning},
others AS (
    SELECT task.id
    FROM ours AS lane
    CROSS JOIN LATERAL (
        SELECT id
        FROM (
            SELECT id, name
            FROM {schema.}tasks AS task
            WHERE {include in_lane}
              AND {due} <= now()
            ORDER BY {due}, id
            LIMIT %(most)s
        ) AS task
        WHERE NOT ({include our_name})
          AND name >= E'\x02' -- what comes before is no lane of a name: see lanes.sql
    ) AS found
    JOIN {schema.}tasks AS task ON task.id = ANY (ARRAY[found.id])
    WHERE lane.lane = ''
      AND COALESCE(task.state, '') IN ('pending', 'failed')
    FOR UPDATE OF task SKIP LOCKED
),
moved AS (
    UPDATE {schema.}tasks AS task
    SET lane = task.name
    FROM others
    WHERE task.id = ANY (ARRAY[others.id])
    RETURNING task.id
)
SELECT count(*) FROM moved
