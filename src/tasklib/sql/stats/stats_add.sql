-- Add what a process has counted. A worker numbers what it tells: what was told before, though the answer was lost,
-- is not counted twice. Reads the database's clock.
WITH told AS (
    UPDATE {schema.}worker_registrations SET counted = %(number)s::bigint
    WHERE id = %(worker)s::text AND counted < %(number)s::bigint
    RETURNING 1
),
added AS (
    INSERT INTO {schema.}stats_deltas (name, queue, level, outcome, reason, count, seconds, waited, buckets, waits, worker)
    SELECT name, queue, level, outcome, reason, count, seconds, waited, buckets::bigint[], waits::bigint[],
           CASE WHEN name = '' THEN '' ELSE COALESCE(%(worker)s::text, '') END
    FROM unnest(%(names)s::text[], %(queues)s::text[], %(levels)s::text[], %(outcomes)s::text[], %(reasons)s::text[],
                %(counts)s::bigint[], %(seconds)s::float8[], %(waited)s::float8[], %(buckets)s::text[], %(waits)s::text[])
             AS stat (name, queue, level, outcome, reason, count, seconds, waited, buckets, waits)
    WHERE EXISTS (SELECT FROM told)
       OR NOT EXISTS (SELECT FROM {schema.}worker_registrations WHERE id = %(worker)s::text)
)
SELECT extract(epoch FROM clock_timestamp())::float8
