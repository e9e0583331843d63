-- The same by an operator, or over HTTP: only to tasks that the caller may see, and on record.
WITH sent AS MATERIALIZED (
    SELECT {schema.}tasklib_signal(id, %(signal)s::text, %(payload)s::text::jsonb, %(key)s::text, %(sender)s::text,
                                   %(sealed_with)s::text) AS outcome
    FROM {schema.}tasks
    WHERE id = %(id)s::text::uuid AND {include owned}
),
changed AS (
    SELECT FROM sent WHERE outcome = 'sent'
),
{include audited}
SELECT outcome FROM sent
