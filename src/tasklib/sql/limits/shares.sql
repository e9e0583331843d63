-- Shares with tasks that wait or run, the deepest first: how many wait (up to `most_of_one` in each lane), for how long,
-- and how many run. Everything is bounded: the lanes that are looked at, and the tasks of each.
WITH RECURSIVE {include lanes_with_tasks},
waiting AS (
    SELECT substring(lane.lane FROM E'\x01s([^\x01]*)') AS share, count(task.due) AS waiting,
           bool_or(task.place >= %(most_of_one)s) AS capped, min(task.due) AS oldest
    FROM (SELECT * FROM lanes LIMIT %(most_lanes)s) AS lane
    CROSS JOIN LATERAL (
        SELECT {due} AS due, row_number() OVER (ORDER BY {due}, id) AS place
        FROM {schema.}tasks AS task
        WHERE {include in_lane}
          AND {due} <= now()
        ORDER BY {due}, id
        LIMIT %(most_of_one)s
    ) AS task
    WHERE lane.lane LIKE E'%%\x01s%%'
    GROUP BY 1
),
running AS (
    SELECT substring(lane FROM E'\x01s([^\x01]*)') AS share, count(*) AS running
    FROM {schema.}tasks
    WHERE state = 'running' AND lane LIKE E'%%\x01s%%'
    GROUP BY 1
)
SELECT share, COALESCE(running, 0), COALESCE(waiting, 0), COALESCE(capped, false),
       extract(epoch FROM now() - oldest)::float8, own.weight, COALESCE(own.max_running, every.max_running),
       COALESCE(own.may_burst, every.may_burst, false)
FROM waiting
FULL JOIN running USING (share)
LEFT JOIN {schema.}limits AS own ON own.name = 'share:' || share
LEFT JOIN {schema.}limits AS every ON every.name = 'share'
ORDER BY COALESCE(waiting, 0) DESC, COALESCE(running, 0) DESC, share
LIMIT %(most)s
