SELECT deployed_at, seen_at FROM {schema.}deploys ORDER BY seen_at DESC, deployed_at DESC LIMIT %(limit)s
