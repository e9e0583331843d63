-- The nodes of a flow in the order of submission: a group of any size is one row, with how many are in each state.
SELECT node, min(name), sum(number)::bigint, jsonb_object_agg(state, number)
FROM (
    SELECT node, state, min(name) AS name, min(id::text) AS first, count(*) AS number
    FROM {schema.}tasks
    WHERE flow = %(id)s::text::uuid
    GROUP BY node, state
) AS counted
GROUP BY node
ORDER BY min(first)
