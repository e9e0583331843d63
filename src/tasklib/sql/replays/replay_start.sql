-- Begin to replay dead letters, if there are any, and none of the same conditions is under way. How many there are is
-- counted among the latest `look`.
WITH looked AS (
    SELECT * FROM {schema.}tasks AS task
    WHERE task.state = 'dead_letter'
    ORDER BY task.completed_at DESC, task.id DESC
    LIMIT %(look)s
),
counted AS (
    SELECT (SELECT count(*) FROM looked AS task WHERE {include dead_letters_chosen}) AS expected,
           (SELECT count(*) FROM looked) >= %(look)s AS is_capped
),
changed AS (
    INSERT INTO {schema.}replays (conditions, per_minute, canary, expected, expected_is_capped, created_by)
    SELECT %(conditions)s::text::jsonb, %(per_minute)s::float8, %(canary)s::text, expected, is_capped, %(actor)s::text
    FROM counted
    WHERE expected > 0 OR is_capped
    ON CONFLICT ((md5(conditions::text))) WHERE status IN ('running', 'paused') DO NOTHING
    RETURNING *
),
recorded AS (
    INSERT INTO {schema.}audit (actor, action, target, details)
    SELECT %(actor)s::text, %(action)s::text, id::text,
           %(details)s::text::jsonb || jsonb_build_object('count', expected)
    FROM changed
)
SELECT {include replay_columns} FROM changed AS replay
