-- Recent counts by name, queue or worker: the busiest ones, each with its outcomes.
WITH {include stats_recent},
sums AS (
    SELECT CASE %(by)s::text WHEN 'name' THEN name WHEN 'worker' THEN worker ELSE queue END AS what, outcome, {include stats_sums}
    FROM recent
    WHERE %(by)s::text = 'worker' OR name <> ''
    GROUP BY what, outcome
),
busiest AS (
    SELECT what, sum(count) AS all_of_it FROM sums GROUP BY what ORDER BY all_of_it DESC, what LIMIT %(limit)s
)
SELECT sums.*
FROM sums
JOIN busiest USING (what)
ORDER BY all_of_it DESC, what, outcome
