-- How deep the tasks of each name are, for charts: as far as a bounded look at each lane shows them, the oldest first.
WITH RECURSIVE {include leader},
{include level_lanes},
{include waiting_by_name},
names AS (
    SELECT name, level, sum(depth)::bigint AS depth, bool_or(is_capped) AS capped,
           extract(epoch FROM now() - min(due))::float8 AS oldest_age_seconds
    FROM counted
    GROUP BY name, level
    ORDER BY min(due), name, level
    LIMIT %(most_names)s
)
INSERT INTO {schema.}depths (minute, queue, level, depth, capped, oldest_age_seconds, name)
SELECT to_timestamp(floor(extract(epoch FROM now()) / 60) * 60), '', level, depth, capped, oldest_age_seconds, name
FROM names
WHERE EXISTS (SELECT FROM leader)
ORDER BY name, level
ON CONFLICT (minute, queue, name, level) DO UPDATE
SET depth = EXCLUDED.depth, capped = EXCLUDED.capped, oldest_age_seconds = EXCLUDED.oldest_age_seconds
