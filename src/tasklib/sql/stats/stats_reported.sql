-- Count what workers over HTTP have reported, from the rows as they are now. How long a task waited is known of its
-- first attempt only: a retry's due time is gone with the retry.
WITH ended AS (
    SELECT name, queue, {include level} AS level, reported.outcome, reported.reason,
           CASE WHEN reported.outcome <> 'stale'
                THEN extract(epoch FROM COALESCE(completed_at, now()) - started_at)::float8 END AS ran,
           CASE WHEN reported.outcome <> 'stale' AND retry_count = 0
                THEN greatest(extract(epoch FROM started_at - scheduled_at), 0)::float8 END AS waited
    FROM unnest(%(ids)s::uuid[], %(outcomes)s::text[], %(reasons)s::text[]) AS reported (id, outcome, reason)
    JOIN {schema.}tasks AS task ON task.id = ANY (ARRAY[reported.id])
)
INSERT INTO {schema.}stats_deltas (name, queue, level, outcome, reason, count, seconds, waited, buckets, waits, worker)
SELECT name, queue, level, outcome, reason, count(*), COALESCE(sum(ran), 0), COALESCE(sum(waited), 0),
       CASE WHEN count(ran) = 0 THEN '{}' ELSE ARRAY(
           SELECT count(*) FILTER (WHERE width_bucket(times.ran, %(bounds)s::float8[]) = bucket)
           FROM generate_series(0, cardinality(%(bounds)s::float8[])) AS bucket, unnest(array_agg(ended.ran)) AS times (ran)
           GROUP BY bucket ORDER BY bucket) END,
       CASE WHEN count(waited) = 0 THEN '{}' ELSE ARRAY(
           SELECT count(*) FILTER (WHERE width_bucket(times.waited, %(bounds)s::float8[]) = bucket)
           FROM generate_series(0, cardinality(%(bounds)s::float8[])) AS bucket,
                unnest(array_agg(ended.waited)) AS times (waited)
           GROUP BY bucket ORDER BY bucket) END,
       %(worker)s::text
FROM ended
GROUP BY name, queue, level, outcome, reason
