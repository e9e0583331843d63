-- Failed attempts by cause, the most frequent first. `first_seen` looks back as far as the sample goes, which the last
-- column says: null if all that is stored was read.
WITH {include failed_attempts},
reach AS (
    SELECT CASE WHEN (SELECT count(*) FROM latest) >= %(most_attempts)s THEN (SELECT min(at) FROM latest)
                WHEN count(*) FILTER (WHERE source = 'dead_letter') >= %(look)s THEN min(completed_at)
                WHEN count(*) FILTER (WHERE source = 'failed') >= %(look)s THEN (SELECT min(at) FROM latest) END AS back_to
    FROM sampled
),
cause AS (
    SELECT fingerprint, min(name) AS name, count(*) FILTER (WHERE is_within) AS attempts,
           count(DISTINCT id) FILTER (WHERE is_within) AS tasks,
           count(*) FILTER (WHERE is_last AND state = 'dead_letter') AS dead_letters,
           count(*) FILTER (WHERE is_last AND state = 'failed') AS retrying,
           min(at) AS first_seen, max(at) AS last_seen,
           (array_agg(id ORDER BY at DESC, id DESC) FILTER (WHERE is_within)) AS ids,
           (array_agg(error ORDER BY at DESC, id DESC) FILTER (WHERE is_within))[1] AS error
    FROM attempt
    WHERE %(fingerprint)s::text IS NULL OR starts_with(fingerprint, %(fingerprint)s::text)
    GROUP BY fingerprint
    HAVING bool_or(is_within)
    ORDER BY attempts DESC, last_seen DESC, fingerprint
    LIMIT %(limit)s
),
steps AS (
    SELECT fingerprint, jsonb_object_agg(step, number) AS counts
    FROM (
        SELECT fingerprint,
               least(%(steps)s - 1, floor(%(steps)s * extract(epoch FROM at - %(since)s::timestamptz)
                                          / extract(epoch FROM %(until)s::timestamptz - %(since)s::timestamptz)))::int
                   AS step,
               count(*) AS number
        FROM attempt
        WHERE is_within AND fingerprint IN (SELECT fingerprint FROM cause)
        GROUP BY 1, 2
    ) AS counted
    GROUP BY fingerprint
)
SELECT fingerprint, name, attempts, tasks, dead_letters, retrying, first_seen, last_seen,
       {include last_line}, counts, ids[1 : %(most_ids)s],
       (SELECT count(*) FROM latest WHERE at >= %(since)s::timestamptz), (SELECT back_to FROM reach)
FROM (SELECT) AS one
LEFT JOIN (cause JOIN steps USING (fingerprint)) ON true
ORDER BY attempts DESC, last_seen DESC, fingerprint
