-- The nodes of a flow in the order of submission: a group of any size is one row, with how many are in each state.
WITH wanted AS (SELECT %(id)s::text::uuid AS id)
SELECT node, min(name), sum(number)::bigint, jsonb_object_agg(state, number)
FROM (
    SELECT node, state, min(name) AS name, min(task.id::text) AS first, count(*) AS number
    FROM wanted CROSS JOIN LATERAL {include of_flow} AS member
    JOIN {schema.}tasks AS task ON task.id = ANY (ARRAY[member.id])
    GROUP BY node, state
) AS counted
GROUP BY node
ORDER BY min(first)
