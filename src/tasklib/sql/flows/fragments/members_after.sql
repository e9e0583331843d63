-- The next tasks of the flow `wanted.id` behind a place in it, up to `limit` of each kind: `near` by the primary key, `far`
-- by node along the index of flows, `nameless` there without a node. Whatever their states are, so that going through
-- a flow page by page reads each task once.
(SELECT 'near' AS kind, near.node, near.id
 FROM {schema.}tasks AS near
 WHERE {include near_flow}
   AND near.id > %(near)s::text::uuid
 ORDER BY near.id
 LIMIT %(limit)s::int)
UNION ALL
(SELECT 'far', far.node, far.id
 FROM {schema.}tasks AS far
 WHERE {include far_from_flow}
   AND (far.node, far.id) > (%(node)s::text, %(far)s::text::uuid)
 ORDER BY far.flow, far.node, far.id
 LIMIT %(limit)s::int)
UNION ALL
(SELECT 'nameless', far.node, far.id
 FROM {schema.}tasks AS far
 WHERE {include far_from_flow}
   AND far.node IS NULL
   AND far.id > %(nameless)s::text::uuid
 ORDER BY far.flow, far.node, far.id
 LIMIT %(limit)s::int)
