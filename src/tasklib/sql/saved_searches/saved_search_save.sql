-- A name that is taken gets the new search; the same search again changes nothing. Of more than `most` names none is new.
WITH changed AS (
    INSERT INTO {schema.}saved_searches AS saved (name, search, saved_by)
    SELECT %(name)s, %(search)s, %(actor)s::text
    WHERE (SELECT count(*) FROM {schema.}saved_searches) < %(most)s
       OR EXISTS (SELECT FROM {schema.}saved_searches WHERE name = %(name)s)
    ON CONFLICT (name) DO UPDATE SET search = EXCLUDED.search, saved_by = EXCLUDED.saved_by, saved_at = now()
    WHERE saved.search <> EXCLUDED.search
    RETURNING 1
),
{include audited}
SELECT * FROM changed
