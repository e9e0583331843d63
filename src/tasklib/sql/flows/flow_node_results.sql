-- One page of what the tasks of some nodes returned, in the order of submission. Node by node along the index, and only
-- what a page takes of each: otherwise every page would read all that follow it.
SELECT page.id::text, page.state, page.result, page.error
FROM (SELECT DISTINCT unnest(%(nodes)s::text::text[]) AS node) AS wanted
CROSS JOIN LATERAL (
    SELECT task.id, task.state, task.result, right(task.error, 2000) AS error
    FROM {schema.}tasks AS task
    WHERE task.flow = %(flow)s::text::uuid
      AND task.node = wanted.node
      AND (task.state = 'completed' OR (%(settled)s::bool AND task.state IN ('cancelled', 'dead_letter')))
      AND task.id > COALESCE(%(after)s::text::uuid, '00000000-0000-0000-0000-000000000000')
    ORDER BY task.flow, task.node, task.id
    LIMIT %(limit)s::int
) AS page
ORDER BY page.id
LIMIT %(limit)s::int
