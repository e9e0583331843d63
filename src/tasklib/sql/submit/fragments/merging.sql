-- Tasks that carry a merge key, no two the same. A submission that is repeated, after its answer was lost, is found by
-- its id and changes nothing.
given AS (
    SELECT *, COALESCE(
               -- Not from the beginning of a transaction that may be older than other submissions.
               clock_timestamp() + make_interval(secs => debounce),
               GREATEST(scheduled_at, now() + make_interval(secs => delay_seconds))) AS due
    FROM jsonb_to_recordset(CAST(CAST(%(tasks)s AS text) AS jsonb)) AS task (
        {include new_task}, merge_key text, merge_while text, on_duplicate text, debounce float8, max_wait float8)
),
repeated AS (
    SELECT known.id, known.state, known.submitted_by,
           known.name = given.name AND known.submitted_by IS NOT DISTINCT FROM given.submitted_by AS is_the_same
    FROM given
    JOIN {schema.}tasks AS known USING (id)
),
fresh AS (
    SELECT * FROM given WHERE NOT EXISTS (SELECT FROM repeated WHERE repeated.id = given.id)
),
-- A task that is returned because it still waits must not begin before the caller's transaction, whose work it is to
-- see, has committed. If it was claimed meanwhile, it isn't found here, and its key is free.
held AS (
    SELECT * FROM (
        SELECT fresh.id AS given_id, task.id, task.submitted_by
        FROM fresh
        JOIN {schema.}tasks AS task ON {include same_merge_key}
        WHERE fresh.merge_while = 'pending' AND fresh.on_duplicate = 'return' AND fresh.debounce IS NULL
        ORDER BY task.name, task.merge_key
        FOR KEY SHARE OF task
    ) AS locked
)
