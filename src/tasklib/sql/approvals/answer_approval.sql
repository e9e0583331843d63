-- Answer an approval, on record: only of tasks that the caller may see.
WITH sent AS MATERIALIZED (
    SELECT {schema.}tasklib_answer(id, %(approval)s::text, %(approved)s::boolean, %(comment)s::text,
                                   %(form)s::text::jsonb, %(sender)s::text, %(question)s::bigint,
                                   %(sealed)s::text::jsonb, %(sealed_with)s::text) AS outcome
    FROM {schema.}tasks
    WHERE id = %(id)s::text::uuid AND {include owned}
),
changed AS (
    SELECT FROM sent WHERE outcome = 'sent'
),
{include audited}
SELECT outcome FROM sent
