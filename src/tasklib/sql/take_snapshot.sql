-- Figures for everybody who wants to show them. Waiting tasks are counted up to a limit per level: `capped` says so.
WITH {include leader},
levels AS (
    SELECT level, count(*) AS depth, count(*) >= %(most)s AS capped,
           extract(epoch FROM now() - min(due))::float8 AS oldest_age_seconds
    FROM (VALUES ('high', 100, 100), ('medium', 0, 99), ('low', -10, -1)) AS band (level, lowest, highest)
    CROSS JOIN LATERAL (
        SELECT {due} AS due
        FROM {schema.}tasks
        WHERE state IN ('pending', 'failed') AND priority BETWEEN lowest AND highest AND {due} <= now()
        LIMIT %(most)s
    ) AS waiting
    GROUP BY level
),
fleet AS (
    SELECT status, count(*) AS workers, sum(capacity) AS capacity, sum(current_load) AS load
    FROM {schema.}workers
    GROUP BY status
)
INSERT INTO {schema.}snapshots (taken_at, figures)
SELECT now(), jsonb_build_object(
    'queues', (SELECT COALESCE(jsonb_object_agg(level, jsonb_build_object(
        'depth', depth, 'capped', capped, 'oldest_age_seconds', oldest_age_seconds)), '{}') FROM levels),
    'running', (SELECT count(*) FROM {schema.}tasks WHERE state = 'running'),
    'workers', (SELECT COALESCE(jsonb_object_agg(status, jsonb_build_object(
        'count', workers, 'capacity', capacity, 'load', load)), '{}') FROM fleet),
    'term', %(term)s::bigint)
FROM leader
ON CONFLICT (one) DO UPDATE SET taken_at = EXCLUDED.taken_at, figures = EXCLUDED.figures
