-- Flows that are kept no longer, each as a whole: its tasks first, page by page, and last the flow itself.
WITH {include leader},
expired AS (
    SELECT id FROM {schema.}flows
    WHERE EXISTS (SELECT FROM leader)
      AND finished_at < now() - make_interval(secs => %(age)s)
    ORDER BY finished_at
    LIMIT 100
    FOR UPDATE SKIP LOCKED
),
doomed AS (
    SELECT task.id FROM expired JOIN {schema.}tasks AS task ON task.flow = expired.id LIMIT %(limit)s
),
deleted AS (
    DELETE FROM {schema.}tasks WHERE id = ANY (ARRAY(SELECT id FROM doomed)) RETURNING 1
),
gone AS (
    DELETE FROM {schema.}flows AS flow
    WHERE flow.id = ANY (ARRAY(SELECT id FROM expired))
      AND NOT EXISTS (SELECT FROM {schema.}tasks AS task
                      WHERE task.flow = flow.id AND task.id <> ALL (ARRAY(SELECT id FROM doomed)))
    RETURNING flow.id
),
gates_gone AS (
    DELETE FROM {schema.}gates WHERE flow = ANY (ARRAY(SELECT id FROM gone))
)
SELECT (SELECT count(*) FROM deleted), (SELECT count(*) FROM gone)
