-- Choose probes for breakers that are probing: the first due tasks of the name. Only tasks whose ids the breaker holds as
-- probes begin (tasklib_admit); their lane, which names the breaker, leads the claim to them without reading those
-- that wait. Of each lane only the first tasks are looked at: what is behind them has to wait for its turn in any case.
WITH RECURSIVE {include leader},
wanted AS MATERIALIZED (
    SELECT name, probe_ids, probes - passed - cardinality(probe_ids) AS number
    FROM {schema.}breakers
    WHERE EXISTS (SELECT FROM leader) AND state = 'probing' AND probes - passed > cardinality(probe_ids)
    ORDER BY name
    FOR UPDATE
),
{include lanes_with_tasks},
found AS (
    SELECT task.id, task.name, task.due
    FROM (SELECT * FROM lanes WHERE EXISTS (SELECT FROM wanted) LIMIT %(most_lanes)s) AS lane
    CROSS JOIN LATERAL (
        SELECT first.id, first.name, first.due
        FROM (
            SELECT id, name, {due} AS due
            FROM {schema.}tasks AS task
            WHERE {include in_lane}
              AND {due} <= now()
            ORDER BY {due}, id
            LIMIT %(most)s
        ) AS first
        JOIN wanted ON wanted.name = first.name AND first.id <> ALL (wanted.probe_ids)
        LIMIT 100
    ) AS task
    WHERE NOT EXISTS (SELECT FROM {schema.}pauses WHERE kind = 'queue' AND value = lane.queue)
),
chosen AS MATERIALIZED (
    SELECT * FROM (
        SELECT task.id, task.name, task.lease_token, E'\x01lbreaker:' || task.name || E'\x02' AS part
        FROM (SELECT id, name, row_number() OVER (PARTITION BY name ORDER BY due, id) AS place FROM found) AS ranked
        JOIN wanted USING (name)
        JOIN {schema.}tasks AS task ON task.id = ANY (ARRAY[ranked.id])
        WHERE place <= wanted.number
          AND COALESCE(task.state, '') IN ('pending', 'failed')
        FOR UPDATE OF task SKIP LOCKED
    ) AS locked
),
marked AS (
    UPDATE {schema.}tasks AS task
    SET lane = CASE WHEN position(part IN task.lane) > 0 THEN task.lane
                    WHEN task.lane >= E'\x01' AND task.lane < E'\x02' THEN task.lane || part
                    ELSE part END
    FROM chosen
    WHERE task.id = ANY (ARRAY[chosen.id])
    RETURNING task.id
),
recorded AS (
    UPDATE {schema.}breakers AS breaker
    SET probe_ids = breaker.probe_ids || ids, probe_tokens = breaker.probe_tokens || tokens, probed_at = now()
    FROM (
        SELECT name, array_agg(id ORDER BY id) AS ids, array_agg(lease_token::bigint ORDER BY id) AS tokens
        FROM chosen
        GROUP BY name
    ) AS taken
    WHERE breaker.name = taken.name
)
SELECT count(*) FROM (SELECT {include wake} FROM marked) AS told
