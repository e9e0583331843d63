-- What became of one slot: its task, and the record of its being skipped; and whether a process leads.
SELECT (SELECT id::text FROM {schema.}tasks WHERE schedule = %(name)s AND slot = %(slot)s::timestamptz),
       (SELECT state FROM {schema.}tasks WHERE schedule = %(name)s AND slot = %(slot)s::timestamptz),
       (SELECT reason FROM (
            SELECT reason, first_slot FROM {schema.}schedule_skips
            WHERE schedule = %(name)s AND last_slot >= %(slot)s::timestamptz
            ORDER BY last_slot LIMIT 1) AS skip
        WHERE first_slot <= %(slot)s::timestamptz),
       COALESCE((SELECT expires_at > now() FROM {schema.}leadership), false)
