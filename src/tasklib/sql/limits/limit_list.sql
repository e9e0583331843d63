-- The limits, with how many places are taken over all keys, and until when any of them is blocked.
SELECT name, max_running, rate, per, burst, serial, weight, may_burst, source, declared, changed_at,
       (SELECT count(*)
        FROM {schema.}places AS place
        JOIN {schema.}tasks AS task ON task.id = place.task
        WHERE place.limit_name = limits.name AND task.state = 'running' AND task.lease_token = place.token),
       (SELECT max(blocked_until) FROM {schema.}limit_states AS known
        WHERE known.limit_name = limits.name AND blocked_until > now())
FROM {schema.}limits
ORDER BY name
