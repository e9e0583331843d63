-- The limits of attempts that were throttled begin nothing for that time: those that are written in the lane of the task,
-- or the one it named. Their rows are locked first, in one order, as a claim does: it never counts with a state that
-- changes under it, and the two can't deadlock. A limit without a row gets one without bounds, which can be held.
throttled AS MATERIALIZED (
    SELECT subject, key, max(delay) AS delay
    FROM (
        SELECT fields[1] AS subject, COALESCE(fields[2], '') AS key, ended.delay
        FROM ended
        CROSS JOIN LATERAL unnest(string_to_array(ended.lane, E'\x01')) AS part
        CROSS JOIN LATERAL (SELECT string_to_array(substr(part, 2), E'\x02') AS fields) AS split
        WHERE ended.outcome = 'throttled' AND ended.state = 'failed'
          AND ended.lane >= E'\x01' AND ended.lane < E'\x02' AND left(part, 1) = 'l'
          AND (ended.holds = '' OR ended.holds = fields[1] OR ended.holds = fields[1] || E'\x02' || fields[2])
        UNION ALL
        SELECT split_part(holds, E'\x02', 1), {schema.}tasklib_lane_key(split_part(holds, E'\x02', 2)), delay
        FROM ended
        WHERE ended.outcome = 'throttled' AND ended.state = 'failed' AND holds <> ''
          AND NOT EXISTS (
              SELECT FROM unnest(string_to_array(ended.lane, E'\x01')) AS part
              WHERE starts_with(part || E'\x02', 'l' || holds || E'\x02'))
    ) AS named
    GROUP BY subject, key
),
nameless AS (
    INSERT INTO {schema.}limits (name, source)
    SELECT DISTINCT subject, 'code' FROM throttled ORDER BY subject
    ON CONFLICT (name) DO NOTHING
),
locked AS MATERIALIZED (
    SELECT name
    FROM {schema.}limits
    WHERE name IN (SELECT unnest(ARRAY[subject, subject || ':' || key]) FROM throttled)
    ORDER BY name
    FOR NO KEY UPDATE
),
blocked AS (
    INSERT INTO {schema.}limit_states AS known (limit_name, key, blocked_until)
    SELECT bound.name, bound.key, now() + make_interval(secs => max(delay))
    FROM throttled
    CROSS JOIN LATERAL (
        SELECT COALESCE((SELECT name FROM locked WHERE key <> '' AND name = subject || ':' || key), subject) AS name
    ) AS found
    CROSS JOIN LATERAL (
        SELECT found.name, CASE WHEN found.name = subject THEN throttled.key ELSE '' END AS key
    ) AS bound
    GROUP BY bound.name, bound.key
    ORDER BY bound.name, bound.key
    ON CONFLICT (limit_name, key) DO UPDATE
    SET blocked_until = greatest(known.blocked_until, EXCLUDED.blocked_until)
)
