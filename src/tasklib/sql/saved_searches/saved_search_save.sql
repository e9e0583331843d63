-- A name that is taken gets the new search; the same search again changes nothing. Of more than `most` names none is new.
WITH there AS MATERIALIZED (
    SELECT count(*) AS number, count(*) FILTER (WHERE name = %(name)s) AS same FROM {schema.}saved_searches
),
changed AS (
    INSERT INTO {schema.}saved_searches AS saved (name, search, saved_by)
    SELECT %(name)s, %(search)s, %(actor)s::text
    FROM there
    WHERE number < %(most)s OR same > 0
    ON CONFLICT (name) DO UPDATE SET search = EXCLUDED.search, saved_by = EXCLUDED.saved_by, saved_at = EXCLUDED.saved_at
    WHERE saved.search <> EXCLUDED.search
    RETURNING 1
),
{include audited}
SELECT * FROM changed
