-- Flows that are kept no longer, each as a whole. Not one that goes on again: arrivals that are not counted yet may take
-- its end back, and a replay may have locked its tasks. Of a flow that is larger than a page the gates go first, so that
-- it can't be replayed any more, and its own row last.
WITH {include leader},
expired AS MATERIALIZED (
    SELECT flow.id, flow.finished_at
    FROM {schema.}flows AS flow
    WHERE EXISTS (SELECT FROM leader)
      AND flow.finished_at < now() - make_interval(secs => %(age)s)
      AND NOT EXISTS (SELECT FROM {schema.}gates AS gate JOIN {schema.}arrivals AS arrival ON arrival.gate = gate.id
                      WHERE gate.flow = flow.id)
      AND NOT EXISTS (SELECT FROM (SELECT flow.id) AS wanted CROSS JOIN LATERAL {include of_flow} AS member
                      JOIN {schema.}tasks AS task ON task.id = ANY (ARRAY[member.id])
                      WHERE task.state IN ('pending', 'running', 'failed'))
      -- A durable task may still have to read the results.
      AND NOT EXISTS (SELECT FROM {schema.}tasks AS task
                      WHERE task.id = flow.parent AND task.state IN ('pending', 'running', 'failed'))
    ORDER BY flow.finished_at
    LIMIT 100
    FOR UPDATE SKIP LOCKED
),
sized AS (
    SELECT id, size, sum(size) OVER (ORDER BY finished_at, id) - size AS before
    FROM expired
    CROSS JOIN LATERAL (
        SELECT count(*) AS size
        FROM (SELECT FROM (SELECT expired.id) AS wanted CROSS JOIN LATERAL {include of_flow} AS member
              LIMIT %(limit)s::int + 1) AS part
    ) AS counted
),
-- As many as fit into a page; the first one in any case.
chosen AS MATERIALIZED (
    SELECT id, size FROM sized WHERE before = 0 OR before + size <= %(limit)s::int
),
locked AS MATERIALIZED (
    SELECT * FROM (
        SELECT task.id, task.flow
        FROM chosen AS wanted
        CROSS JOIN LATERAL {include of_flow} AS member
        JOIN {schema.}tasks AS task ON task.id = ANY (ARRAY[member.id])
        WHERE task.state IN ('completed', 'cancelled', 'dead_letter')
        LIMIT %(limit)s
        FOR UPDATE OF task SKIP LOCKED
    ) AS locked
),
doomed AS MATERIALIZED (
    SELECT chosen.id, size <= %(limit)s::int AS is_whole
    FROM chosen
    WHERE (SELECT count(*) FROM locked WHERE locked.flow = chosen.id) = least(size, %(limit)s::int)
),
deleted AS (
    DELETE FROM {schema.}tasks
    WHERE id = ANY (ARRAY(SELECT locked.id FROM locked JOIN doomed ON doomed.id = locked.flow))
    RETURNING 1
),
gates_gone AS (
    DELETE FROM {schema.}gates WHERE flow = ANY (ARRAY(SELECT id FROM doomed))
),
gone AS (
    DELETE FROM {schema.}flows WHERE id = ANY (ARRAY(SELECT id FROM doomed WHERE is_whole)) RETURNING 1
)
SELECT (SELECT count(*) FROM deleted), (SELECT count(*) FROM gone)
