-- Failed attempts by cause, the most frequent first. `first_seen` looks back as far as the sample goes, which the last
-- column says: null if all that is stored was read.
WITH {include failed_attempts},
reach AS (
    SELECT CASE WHEN (SELECT count(*) FROM latest) >= %(most_attempts)s THEN (SELECT min(at) FROM latest)
                WHEN dead_letters.number >= %(look)s THEN dead_letters.since
                WHEN retrying.number >= %(look)s THEN (SELECT min(at) FROM latest) END AS back_to
    FROM (SELECT count(*) AS number, min(completed_at) AS since
          FROM (SELECT completed_at
                FROM {schema.}tasks
                WHERE state = 'dead_letter' AND completed_at < %(until)s::timestamptz
                ORDER BY completed_at DESC, id DESC
                LIMIT %(look)s) AS sampled) AS dead_letters
    CROSS JOIN (SELECT count(*) AS number
                FROM (SELECT FROM {schema.}tasks
                      WHERE {include waits_for_retry}
                      ORDER BY state DESC, id DESC
                      LIMIT %(look)s) AS sampled) AS retrying
),
of_task AS MATERIALIZED (
    SELECT cause, id, count(*) FILTER (WHERE is_within) AS attempts,
           count(*) FILTER (WHERE is_last AND state = 'dead_letter') AS dead_letters,
           count(*) FILTER (WHERE is_last AND state = 'failed') AS retrying,
           min(at) AS first_seen, max(at) AS last_seen, min(place) FILTER (WHERE is_within) AS place
    FROM attempt
    GROUP BY cause, id
),
cause AS MATERIALIZED (
    SELECT cause, sum(attempts)::bigint AS attempts, count(place) AS tasks, sum(dead_letters)::bigint AS dead_letters,
           sum(retrying)::bigint AS retrying, min(first_seen) AS first_seen, max(last_seen) AS last_seen,
           min(place) AS place
    FROM of_task
    GROUP BY cause
    HAVING count(place) > 0
    ORDER BY attempts DESC, last_seen DESC, cause
    LIMIT %(limit)s
),
steps AS (
    SELECT cause, jsonb_object_agg(step, number) AS counts
    FROM (
        SELECT cause,
               least(%(steps)s - 1, floor(
                   %(steps)s * extract(epoch FROM at - %(since)s::timestamptz)::float8
                   / extract(epoch FROM %(until)s::timestamptz - %(since)s::timestamptz)::float8))::int AS step,
               count(*) AS number
        FROM attempt
        WHERE is_within AND cause IN (SELECT cause FROM cause)
        GROUP BY 1, 2
    ) AS counted
    GROUP BY cause
),
ids AS (
    SELECT cause, (array_agg(id ORDER BY place))[1 : %(most_ids)s] AS ids
    FROM of_task
    WHERE place IS NOT NULL
    GROUP BY cause
)
SELECT fingerprint, name, attempts, tasks, dead_letters, retrying, first_seen, last_seen, line, counts, ids,
       (SELECT count(*) FROM latest WHERE at >= %(since)s::timestamptz), (SELECT back_to FROM reach)
FROM (SELECT) AS one
LEFT JOIN (
    cause
    JOIN steps USING (cause)
    JOIN ids USING (cause)
    JOIN (SELECT place, name, line FROM latest) AS last USING (place)
    JOIN cause_of_line USING (cause, name, line)
) ON true
ORDER BY attempts DESC, last_seen DESC, cause
