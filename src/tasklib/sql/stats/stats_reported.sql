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
),
counted AS (
    INSERT INTO {schema.}stats_deltas (name, queue, level, outcome, reason, count, seconds, waited, buckets, waits, worker)
    SELECT name, queue, level, outcome, reason, count(*), COALESCE(sum(ran), 0), COALESCE(sum(waited), 0),
           {schema.}tasklib_histogram(array_agg(ran) FILTER (WHERE ran IS NOT NULL), %(bounds)s::float8[]),
           {schema.}tasklib_histogram(array_agg(waited) FILTER (WHERE waited IS NOT NULL), %(bounds)s::float8[]),
           %(worker)s::text
    FROM ended
    GROUP BY name, queue, level, outcome, reason
)
SELECT true
