-- What the CTE `changed` did goes into the audit by the same statement: neither is ever there without the other, and
-- what changed nothing is not recorded.
recorded AS (
    INSERT INTO {schema.}audit (actor, action, target, details)
    SELECT %(actor)s::text, %(action)s::text, %(target)s::text, %(details)s::text::jsonb
    FROM changed
    LIMIT 1
)
