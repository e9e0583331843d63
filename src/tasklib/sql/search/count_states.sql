-- How many tasks there are of each state that has an index, up to a limit, each counted in the order of its index, so
-- that it is used. The index of what waits doesn't tell pending from failed tasks: more of them are looked at.
SELECT 'pending', least(%(most)s, count(*) FILTER (WHERE state = 'pending')),
       count(*) >= 2 * %(most)s OR count(*) FILTER (WHERE state = 'pending') >= %(most)s
FROM (
    (SELECT state FROM {schema.}tasks
     WHERE state IN ('pending', 'failed') AND waits_for IS NULL
     ORDER BY queue, lane, required_capabilities, priority, {due}, id
     LIMIT 2 * %(most)s)
    UNION ALL
    (SELECT state FROM {schema.}tasks
     WHERE state IN ('pending', 'failed') AND waits_for IS NOT NULL
     ORDER BY waits_for, id
     LIMIT 2 * %(most)s)) AS task
UNION ALL
SELECT 'running', count(*), count(*) >= %(most)s FROM (
    SELECT FROM {schema.}tasks WHERE state = 'running' ORDER BY locked_until LIMIT %(most)s) AS task
UNION ALL
SELECT aside.state, counted.number, counted.number >= %(most)s
FROM (VALUES ('failed'), ('cancelled'), ('dead_letter')) AS aside (state), LATERAL (
    SELECT count(*) AS number FROM (
        SELECT FROM {schema.}tasks AS task
        WHERE {include set_aside} AND (task.state, id) > (aside.state, '00000000-0000-0000-0000-000000000000')
          AND (task.state, id) < (aside.state, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
        ORDER BY task.state, id
        LIMIT %(most)s) AS task) AS counted
