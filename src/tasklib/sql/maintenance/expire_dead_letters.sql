WITH {include leader}
DELETE FROM {schema.}tasks
WHERE id IN (
    SELECT id FROM {schema.}tasks
    WHERE EXISTS (SELECT FROM leader)
      AND state = 'dead_letter'
      -- A flow is deleted as a whole: forget_flows.sql.
      AND flow IS NULL
      AND completed_at < now() - make_interval(secs => %(age)s)
    ORDER BY completed_at
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED)
RETURNING id::text
