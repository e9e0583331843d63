(%(nodes)s::text[] IS NULL OR task.node LIKE ANY (%(nodes)s::text[])) AND {include search_range}
