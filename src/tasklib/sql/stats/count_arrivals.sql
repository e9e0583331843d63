-- Count the tasks that were submitted in each of the last minutes, by name and queue. Ids start with their time, so the
-- rows of a minute are neighbours in the primary key, and a submission pays nothing. A minute is counted once, some time
-- after its end, because a transaction may commit late. Of a minute with very many tasks the first ones stand for all.
WITH {include leader},
minutes AS (
    SELECT minute, lpad(to_hex((extract(epoch FROM minute) * 1000)::bigint), 12, '0') AS first_12,
           lpad(to_hex((extract(epoch FROM minute) * 1000 + 60000)::bigint), 12, '0') AS next_12
    FROM generate_series(date_trunc('minute', now() - make_interval(secs => %(grace)s)) - interval '10 minutes',
                         date_trunc('minute', now() - make_interval(secs => %(grace)s)) - interval '1 minute',
                         interval '1 minute') AS minute
    WHERE EXISTS (SELECT FROM leader)
      AND NOT EXISTS (SELECT FROM {schema.}stats
                      WHERE span = 60 AND start = minute AND name = '' AND queue = '' AND outcome = 'arrivals_counted')
    ORDER BY minute DESC
    LIMIT %(most_minutes)s
),
found AS MATERIALIZED (
    SELECT minute, task.*
    FROM minutes
    CROSS JOIN LATERAL (
        SELECT id, name, queue, row_number() OVER (ORDER BY id) AS place
        FROM {schema.}tasks
        WHERE id >= (first_12 || '00000000000000000000')::uuid AND id < (next_12 || '00000000000000000000')::uuid
        ORDER BY id
        LIMIT %(most)s
    ) AS task
),
-- How much of each minute was read: all of it, or up to the id where reading ended.
scales AS (
    SELECT minute,
           CASE WHEN last.id IS NULL THEN 1.0
                ELSE 60000.0 / greatest(1, ('x' || left(replace(last.id::text, '-', ''), 12))::bit(48)::bigint + 1
                                           - (extract(epoch FROM minute) * 1000)::bigint) END AS scale
    FROM minutes
    LEFT JOIN LATERAL (SELECT id FROM found WHERE found.minute = minutes.minute AND place = %(most)s) AS last ON true
),
ranked AS (
    SELECT minute, name, queue, count(*) AS number,
           row_number() OVER (PARTITION BY minute ORDER BY count(*) DESC, name, queue) AS rank
    FROM found
    GROUP BY minute, name, queue
)
INSERT INTO {schema.}stats AS stat
    (span, start, name, queue, level, outcome, reason, worker, count, seconds, waited, buckets, waits)
SELECT 60, minute, CASE WHEN rank <= %(most_pairs)s THEN name ELSE %(other)s::text END,
       CASE WHEN rank <= %(most_pairs)s THEN queue ELSE %(other)s::text END, '', 'submitted', '', '',
       round(sum(number) * scale)::bigint, 0, 0, '{}'::bigint[], '{}'::bigint[]
FROM ranked
JOIN scales USING (minute)
GROUP BY minute, scale, 3, 4
UNION ALL
-- How many seconds were counted: a longer span knows whether it is complete.
SELECT 60, minute, '', '', '', 'arrivals_counted', CASE WHEN scale > 1 THEN 'sampled' ELSE '' END, '',
       0, 60, 0, '{}', '{}'
FROM scales
ON CONFLICT (span, start, name, queue, level, outcome, reason, worker) DO UPDATE SET count = EXCLUDED.count
