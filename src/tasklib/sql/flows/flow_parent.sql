-- The durable task that waits for a flow.
SELECT parent::text FROM {schema.}flows WHERE id = %(flow)s::text::uuid
