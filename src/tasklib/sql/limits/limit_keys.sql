-- The keys of one limit that are in use: how many tasks run, how many tokens a rate has, and until when it is held. The
-- busiest first.
WITH bound AS (
    SELECT * FROM {schema.}limits WHERE name = %(name)s
),
used AS (
    SELECT place.key, count(*) AS running
    FROM {schema.}places AS place
    JOIN {schema.}tasks AS task ON task.id = place.task
    WHERE place.limit_name = %(name)s AND task.lease_token = place.token AND task.state = 'running'
    GROUP BY place.key
),
known AS (
    SELECT key, empty_at, blocked_until FROM {schema.}limit_states WHERE limit_name = %(name)s
)
SELECT key, COALESCE(running, 0),
       CASE WHEN rate IS NOT NULL THEN least(burst, COALESCE(
           extract(epoch FROM now() - NULLIF(empty_at, '-infinity'))::float8 * rate / per, burst))::float8 END,
       CASE WHEN blocked_until > now() THEN blocked_until END
FROM bound
CROSS JOIN (SELECT * FROM used FULL JOIN known USING (key)) AS keys
WHERE running > 0 OR blocked_until > now() OR empty_at > now() - make_interval(secs => burst * per / rate)
ORDER BY COALESCE(running, 0) DESC, blocked_until DESC NULLS LAST, key
LIMIT %(most)s
