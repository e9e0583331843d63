SELECT status, queues, names, capabilities, capacity, token_id::text, asleep FROM {schema.}workers WHERE id = %(id)s
