-- What the CTE `changed` did is counted by the same statement, as a row of its own: nobody waits for it. What runs has
-- only been asked to stop; it counts when it has.
counted AS (
    INSERT INTO {schema.}stats_deltas (name, queue, level, outcome, reason, count)
    SELECT name, queue, {include level}, outcome, reason, count(*)
    FROM changed
    WHERE outcome <> 'running'
    GROUP BY 1, 2, 3, 4, 5
)
