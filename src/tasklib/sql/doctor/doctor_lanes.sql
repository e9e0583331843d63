-- The lanes that hold tasks, up to a limit, and the names of the tasks that wait there first: of all of a lane's names
-- if it holds few tasks.
WITH RECURSIVE {include lanes_with_tasks},
seen AS MATERIALIZED (
    SELECT * FROM lanes LIMIT %(most)s
),
share AS (
    SELECT greatest(10, %(look)s / greatest(1, count(*))) AS look FROM seen
)
SELECT lane.queue, lane.lane, task.name, lane.required_capabilities, lane.priority,
       extract(epoch FROM now() - greatest(task.due, now() - interval '100 years'))::float8
FROM seen AS lane
CROSS JOIN LATERAL (
    SELECT name, min(due) AS due
    FROM (
        SELECT name, {due} AS due
        FROM {schema.}tasks AS task
        WHERE {include in_lane}
        ORDER BY {due}, id
        LIMIT CASE WHEN lane.lane = '' THEN (SELECT look FROM share) ELSE 1 END
    ) AS task
    GROUP BY name
) AS task
ORDER BY lane.queue, lane.lane, lane.required_capabilities, lane.priority, task.due, task.name
