-- Move each breaker on: open it if too many attempts have failed, let it probe when its time is over, close it after
-- enough probes, open it again after one that failed. Attempts are counted from what workers report (`stats_deltas`)
-- and what the leader has folded of that; probes are judged by their rows. Says which are probing, and which moved.
WITH {include leader},
watched AS MATERIALIZED (
    SELECT *
    FROM {schema.}breakers
    WHERE EXISTS (SELECT FROM leader) AND failures IS NOT NULL
    ORDER BY name
    FOR UPDATE
),
counted AS MATERIALIZED (
    SELECT name, sum(attempts)::bigint AS attempts, sum(failed)::bigint AS failed
    FROM (
        SELECT delta.name, count AS attempts, CASE WHEN outcome = 'completed' THEN 0 ELSE count END AS failed
        FROM watched
        JOIN {schema.}stats_deltas AS delta ON delta.name = watched.name
        WHERE state = 'closed' AND delta.at > greatest(since, now() - make_interval(secs => within))
          AND ({include breaker_counts})
        UNION ALL
        SELECT folded.name, folded.attempts, folded.failed
        FROM watched
        JOIN {schema.}breaker_counts AS folded ON folded.name = watched.name
        WHERE state = 'closed' AND folded.at > greatest(since, now() - make_interval(secs => within))
    ) AS parts
    GROUP BY name
),
-- An attempt that was lost or given back is no verdict: the task is still a probe. One that no worker has begun for long
-- goes back, and another is chosen.
probed AS MATERIALIZED (
    SELECT watched.name, probe.id, probe.token, CASE
               WHEN task.id IS NULL OR task.state = 'cancelled' THEN 'gone'
               WHEN task.state = 'completed' THEN 'passed'
               WHEN task.state IN ('failed', 'dead_letter') AND task.history -> -1 -> 'token' > to_jsonb(probe.token)
                    AND task.history -> -1 ->> 'outcome' IN ('error', 'timeout', 'crash') THEN 'failed'
               WHEN task.state IN ('failed', 'dead_letter') AND task.history -> -1 -> 'token' > to_jsonb(probe.token)
                    AND task.history -> -1 ->> 'outcome' IN ('retry', 'rejected', 'throttled') THEN 'passed'
               WHEN task.state = 'pending' AND task.lease_token > probe.token AND task.awaited_signals IS NOT NULL
                   THEN 'passed'
               WHEN task.state <> 'running' AND probed_at < now() - make_interval(secs => greatest(pause, 60))
                   THEN 'late'
               ELSE 'under way' END AS verdict
    FROM watched
    CROSS JOIN LATERAL unnest(probe_ids, probe_tokens) AS probe (id, token)
    LEFT JOIN {schema.}tasks AS task ON task.id = probe.id
    WHERE watched.state = 'probing'
),
probes AS (
    SELECT name, count(*) FILTER (WHERE verdict = 'passed')::int AS newly_passed, bool_or(verdict = 'failed') AS has_failed,
           COALESCE(array_agg(id ORDER BY id) FILTER (WHERE verdict = 'under way'), '{}') AS ids,
           COALESCE(array_agg(token ORDER BY id) FILTER (WHERE verdict = 'under way'), '{}') AS tokens
    FROM probed
    GROUP BY name
),
judged AS MATERIALIZED (
    SELECT watched.name, state AS previous, attempts, failed, newly_passed, ids, tokens, CASE
               WHEN state = 'closed' AND attempts >= at_least AND failed > 0 AND failed >= failures * attempts THEN 'open'
               WHEN state = 'open' AND until <= now() THEN 'probing'
               WHEN state = 'probing' AND has_failed THEN 'open'
               WHEN state = 'probing' AND passed + newly_passed >= watched.probes THEN 'closed'
               ELSE state END AS next
    FROM watched
    LEFT JOIN counted USING (name)
    LEFT JOIN probes USING (name)
),
moved AS (
    UPDATE {schema.}breakers AS breaker
    SET state = next,
        since = (SELECT CASE WHEN next = previous THEN since ELSE now() END),
        until = (SELECT CASE WHEN next = 'open' AND previous <> 'open' THEN now() + make_interval(secs => pause)
                             WHEN next = previous THEN until END),
        opened = opened + (next = 'open' AND previous <> 'open')::int,
        seen_attempts = CASE WHEN previous = 'closed' AND next = 'open' THEN attempts ELSE seen_attempts END,
        seen_failures = CASE WHEN previous = 'closed' AND next = 'open' THEN failed ELSE seen_failures END,
        passed = CASE WHEN next = 'probing' AND previous = 'probing' THEN passed + newly_passed ELSE 0 END,
        probe_ids = CASE WHEN next = 'probing' THEN COALESCE(ids, '{}') ELSE '{}' END,
        probe_tokens = CASE WHEN next = 'probing' THEN COALESCE(tokens, '{}') ELSE '{}' END,
        changed_by = 'leader'
    FROM judged
    WHERE breaker.name = judged.name
      AND (next <> previous OR cardinality(probe_ids) > cardinality(COALESCE(ids, '{}')))
    RETURNING breaker.name, previous, next, attempts, failed, until
),
returned AS (
    UPDATE {schema.}tasks AS task
    SET lane = replace(task.lane, E'\x01lbreaker:' || task.name || E'\x02', '')
    FROM probed
    WHERE verdict = 'late' AND task.id = ANY (ARRAY[probed.id])
      AND COALESCE(task.state, '') IN ('pending', 'failed')
),
forgotten AS (
    DELETE FROM {schema.}breaker_counts
    WHERE EXISTS (SELECT FROM leader)
      AND at < now() - make_interval(secs => COALESCE((SELECT max(within) FROM watched), 0))
)
SELECT name, previous, next, attempts, failed, until FROM moved WHERE next <> previous
UNION ALL
SELECT name, next, next, NULL, NULL, NULL FROM judged WHERE next = 'probing' AND previous = 'probing'
