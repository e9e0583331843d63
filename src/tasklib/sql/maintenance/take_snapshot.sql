-- Figures for metrics and the dashboard. Waiting tasks are counted up to a limit: `capped` is then true. Many lanes
-- share the limit, so that none is left out.
WITH RECURSIVE {include leader},
{include level_lanes},
shares AS (
    SELECT least(%(most)s, greatest(%(most_in_all)s / greatest(count(*), 1), %(least)s)) AS share FROM seen
),
waiting AS (
    SELECT lane.queue, lane.level, waiting.due, waiting.place >= (SELECT share FROM shares) AS is_last
    FROM seen AS lane
    CROSS JOIN LATERAL (
        SELECT {due} AS due, row_number() OVER (ORDER BY {due}, id) AS place
        FROM {schema.}tasks AS task
        WHERE {include in_lane}
          AND {due} <= now()
        ORDER BY {due}, id
        LIMIT (SELECT share FROM shares)
    ) AS waiting
    WHERE lane.due <= now()
    LIMIT %(most_in_all)s
),
stopped AS (
    SELECT CASE WHEN count(*) = %(most_in_all)s THEN max(queue) END AS at_queue FROM waiting
),
levels AS (
    SELECT queue, level, count(*) AS depth,
           bool_or(is_last) OR COALESCE(queue >= (SELECT at_queue FROM stopped), false) AS capped,
           extract(epoch FROM now() - min(due))::float8 AS oldest_age_seconds,
           percentile_cont(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY extract(epoch FROM now() - due)::float8) AS ages
    FROM waiting
    GROUP BY queue, level
),
fleet AS (
    SELECT status, count(*) AS workers, sum(capacity) AS capacity, sum(current_load) AS load
    FROM {schema.}workers
    GROUP BY status
),
remembered AS (
    INSERT INTO {schema.}depths (minute, queue, level, depth, capped, oldest_age_seconds, name)
    SELECT to_timestamp(floor(extract(epoch FROM now()) / 60) * 60), queue, level, depth, capped, oldest_age_seconds, ''
    FROM (SELECT queue, level, depth, capped, oldest_age_seconds FROM levels
          -- That the leader counted, whatever it found.
          UNION ALL VALUES ('', '', 0, false, 0)) AS found
    WHERE EXISTS (SELECT FROM leader)
    ORDER BY queue, level
    ON CONFLICT (minute, queue, name, level) DO UPDATE
    SET depth = EXCLUDED.depth, capped = EXCLUDED.capped, oldest_age_seconds = EXCLUDED.oldest_age_seconds
),
-- For three hours by the minute, then by ten minutes, for eight days.
forgotten AS (
    DELETE FROM {schema.}depths
    WHERE EXISTS (SELECT FROM leader)
      AND minute < now() - interval '3 hours'
      AND (minute < now() - interval '8 days' OR extract(epoch FROM minute)::bigint %% 600 <> 0)
)
INSERT INTO {schema.}snapshots (one, taken_at, figures)
SELECT true, now(), jsonb_build_object(
    'levels', (SELECT COALESCE(jsonb_agg(jsonb_build_object(
        'queue', queue, 'level', level, 'depth', depth, 'capped', capped, 'oldest_age_seconds', oldest_age_seconds,
        'p50', ages[1], 'p95', ages[2], 'p99', ages[3])), '[]') FROM levels),
    'queues', (SELECT COALESCE(jsonb_object_agg(level, jsonb_build_object(
        'depth', depth, 'capped', capped, 'oldest_age_seconds', oldest_age_seconds)), '{}')
        FROM (SELECT level, sum(depth) AS depth, bool_or(capped) AS capped, max(oldest_age_seconds) AS oldest_age_seconds
              FROM levels GROUP BY level) AS queue),
    'running', (SELECT count(*) FROM {schema.}tasks WHERE state = 'running'),
    'workers', (SELECT COALESCE(jsonb_object_agg(status, jsonb_build_object(
        'count', workers, 'capacity', capacity, 'load', load)), '{}') FROM fleet),
    'term', %(term)s::bigint)
FROM leader
ON CONFLICT (one) DO UPDATE SET taken_at = EXCLUDED.taken_at, figures = EXCLUDED.figures
