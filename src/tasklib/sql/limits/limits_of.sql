-- The limits of one waiting task: how much of each is taken, and how soon the next place or token is expected.
WITH task AS (
    SELECT task.queue, task.name, {schema.}tasklib_lane(task.name, task.lane, task.kwargs) AS lane, task.id
    FROM {schema.}tasks AS task
    WHERE task.id = %(id)s::text::uuid AND task.state IN ('pending', 'failed') AND {include owned}
),
used AS (
    SELECT 'queue' AS subject, queue AS key, 1 AS cost, 0 AS place FROM task
    UNION ALL
    SELECT CASE left(part, 1) WHEN 'k' THEN 'serial:' || queue WHEN 's' THEN 'share' ELSE fields[1] END,
           CASE left(part, 1) WHEN 'l' THEN COALESCE(fields[2], '') ELSE fields[1] END,
           COALESCE(NULLIF(fields[3], '')::int, 1), place
    FROM task
    CROSS JOIN LATERAL unnest(string_to_array(lane, E'\x01')) WITH ORDINALITY AS parts (part, place)
    CROSS JOIN LATERAL (SELECT string_to_array(substr(part, 2), E'\x02') AS fields) AS split
    WHERE lane >= E'\x01' COLLATE "C" AND lane < E'\x02' COLLATE "C" AND left(part, 1) IN ('k', 's', 'l')
),
bounds AS (
    SELECT bound.*, used.cost, used.place, CASE WHEN bound.name = subject THEN used.key ELSE '' END AS key
    FROM used
    CROSS JOIN LATERAL (
        SELECT * FROM {schema.}limits
        WHERE name = subject OR used.key <> '' AND name = subject || ':' || used.key
        ORDER BY length(name) DESC
        LIMIT 1
    ) AS bound
    WHERE COALESCE(max_running, rate) IS NOT NULL OR serial IS NOT NULL
)
SELECT bounds.name, bounds.key, max_running, rate, per, burst, serial, taken.count, taken.holder::text,
       known.blocked_until,
       CASE WHEN rate IS NOT NULL THEN greatest(0, extract(epoch FROM
           greatest(known.empty_at, now() - make_interval(secs => burst * per / rate))
           + make_interval(secs => least(cost, burst) * per / rate) - now()))::float8 END,
       taken.free_in
FROM bounds
LEFT JOIN {schema.}limit_states AS known ON known.limit_name = bounds.name AND known.key = bounds.key
CROSS JOIN LATERAL (
    SELECT count(*) AS count, (array_agg(holder.id))[1] AS holder,
           -- What took its place in its own code gives it back before its end, at an unknown time.
           min(usual.seconds - least(usual.seconds, extract(epoch FROM now() - holder.started_at)::float8))
               FILTER (WHERE holder.state = 'running' AND place.block = 0) AS free_in
    FROM {schema.}places AS place
    JOIN {schema.}tasks AS holder ON holder.id = place.task
    -- How long tasks of its name took in the last hour.
    LEFT JOIN LATERAL (
        SELECT sum(seconds) / sum(count) AS seconds
        FROM {schema.}stats
        WHERE span = 60 AND start > now() - interval '1 hour' AND name = holder.name AND outcome = 'completed'
          AND worker = ''
    ) AS usual ON true
    WHERE place.limit_name = bounds.name AND place.key = bounds.key
      AND {include holding}
      AND holder.id <> %(id)s::text::uuid
) AS taken
ORDER BY bounds.place
