-- Insert tasks without idempotency keys, with ids made by the caller, and read which of these ids existed before:
-- from a repeated submission, or another task.
WITH given AS (
    SELECT *
    FROM jsonb_to_recordset(CAST(CAST(%(tasks)s AS text) AS jsonb)) AS task ({include new_task})
), inserted AS (
    INSERT INTO {schema.}tasks ({include submitted_columns})
    SELECT {include submitted_values}
    FROM given
    ON CONFLICT (id) DO NOTHING
)
-- This sees the table as it was before the insert.
SELECT known.id::text,
       known.submitted_by IS NOT DISTINCT FROM given.submitted_by
       AND known.payload_version IS NOT DISTINCT FROM given.payload_version
       AND known.key_id IS NOT DISTINCT FROM given.key_id
       -- What is sealed anew differs each time.
       AND (given.key_id IS NOT NULL OR known.kwargs = given.kwargs)
       AND (known.name, known.queue, known.priority, known.tags, known.required_capabilities)
           = (given.name, given.queue, given.priority, given.tags, given.required_capabilities)
FROM given
JOIN {schema.}tasks AS known USING (id)
