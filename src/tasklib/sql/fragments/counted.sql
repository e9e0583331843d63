-- Count what the CTE `changed` did, in the same statement, as a new row, so that no transaction waits for another.
-- A running task has only been asked to stop; it counts when it has stopped.
counted AS (
    INSERT INTO {schema.}stats_deltas (name, queue, level, outcome, reason, count)
    SELECT name, queue, {include level}, outcome, reason, count(*)
    FROM changed
    WHERE outcome <> 'running'
    GROUP BY 1, 2, 3, 4, 5
)
