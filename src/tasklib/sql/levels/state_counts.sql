-- How many tasks are in each state. Small numbers are counted, by the index of each state; the others are estimates of
-- the last ANALYZE. Null where there is none.
WITH RECURSIVE {include level_lanes},
place AS MATERIALIZED (
    SELECT measured.reltuples, measured.states, measured.shares, measured.bytes <= %(small_bytes)s::bigint AS is_small
    FROM {schema.}tasklib_measured('{schema.}tasks'::regclass) AS measured
),
-- A table of few pages is counted whole.
small AS (
    SELECT state, count(*) AS count
    FROM (SELECT state FROM {schema.}tasks WHERE (SELECT is_small FROM place) LIMIT %(most_small)s) AS task
    GROUP BY state
),
statistics AS (
    SELECT states, shares, reltuples FROM place WHERE reltuples >= 0 AND states IS NOT NULL
),
estimated AS (
    SELECT state, (share * reltuples)::bigint AS count
    FROM statistics CROSS JOIN LATERAL unnest(states, shares) AS common (state, share)
),
-- What the leader lately found to be many is not counted again.
deep AS (
    SELECT sum((level ->> 'depth')::bigint)::bigint AS depth
    FROM {schema.}snapshots CROSS JOIN LATERAL jsonb_array_elements(figures -> 'levels') AS level
    WHERE taken_at > now() - make_interval(secs => %(fresh)s)
    HAVING sum((level ->> 'depth')::bigint) > %(most)s
),
waiting AS (
    SELECT found.state
    FROM seen AS lane
    CROSS JOIN LATERAL (
        SELECT state
        FROM {schema.}tasks AS task
        WHERE {include in_lane}
        ORDER BY {due}, id
        LIMIT %(most)s + 1
    ) AS found
    WHERE NOT EXISTS (SELECT FROM deep)
    LIMIT %(most)s + 1
),
at_a_gate AS (
    SELECT state
    FROM {schema.}tasks
    WHERE state IN ('pending', 'failed') AND waits_for IS NOT NULL
    ORDER BY waits_for, id
    LIMIT %(most)s + 1
),
waiting_anywhere AS (
    SELECT state FROM waiting UNION ALL SELECT state FROM at_a_gate
),
-- The order is that of the index, so that no other way is taken.
running AS (
    SELECT FROM {schema.}tasks WHERE state = 'running' ORDER BY locked_until LIMIT %(most)s + 1
),
dead_letter AS (
    SELECT FROM {schema.}tasks WHERE state = 'dead_letter' ORDER BY completed_at, id LIMIT %(most)s + 1
),
counted AS (
    SELECT 'pending' AS state, greatest(count(*) FILTER (WHERE state = 'pending'), (SELECT depth FROM deep)) AS count,
           count(*) <= %(most)s AND NOT EXISTS (SELECT FROM deep) AS is_all
    FROM waiting_anywhere
    UNION ALL
    SELECT 'failed', count(*) FILTER (WHERE state = 'failed'), count(*) <= %(most)s AND NOT EXISTS (SELECT FROM deep)
    FROM waiting_anywhere
    UNION ALL
    SELECT 'running', count(*), count(*) <= %(most)s FROM running
    UNION ALL
    SELECT 'dead_letter', count(*), count(*) <= %(most)s FROM dead_letter
)
SELECT state,
       CASE WHEN is_small THEN COALESCE(small.count, 0)
            WHEN is_all THEN counted.count
            ELSE greatest(counted.count, COALESCE(estimated.count, (SELECT 0 FROM statistics))) END,
       NOT (is_small OR COALESCE(is_all, false))
FROM unnest('{pending,running,completed,failed,cancelled,dead_letter}'::text[]) WITH ORDINALITY AS known (state, place_of_it)
CROSS JOIN place
LEFT JOIN small USING (state)
LEFT JOIN counted USING (state)
LEFT JOIN estimated USING (state)
ORDER BY place_of_it
