-- The same for many rows at once: one record, with how many there were.
recorded AS (
    INSERT INTO {schema.}audit (actor, action, target, details)
    SELECT %(actor)s::text, %(action)s::text, %(target)s::text,
           %(details)s::text::jsonb || jsonb_build_object('count', count(*))
    FROM changed
    HAVING count(*) > 0
)
