-- The ids of all tasks of the flow `wanted.id`.
(SELECT near.id FROM {schema.}tasks AS near WHERE {include near_flow}
 UNION ALL
 SELECT far.id FROM {schema.}tasks AS far WHERE {include far_from_flow})
