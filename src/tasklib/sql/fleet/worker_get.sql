-- Whether it was declared dead: until then it may be late, and go on.
SELECT reported_status, queues, names, capabilities, capacity, token_id::text, asleep FROM {schema.}workers WHERE id = %(id)s
