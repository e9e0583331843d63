share AS (
    SELECT greatest(1, least(%(most)s, %(most_in_all)s / greatest(1, count(*)))) AS most FROM seen WHERE due <= now()
),
counted AS (
    SELECT waiting.name, lane.level, least(waiting.depth, most) AS depth, waiting.of_all > most AS is_capped, waiting.due
    FROM seen AS lane
    CROSS JOIN share
    CROSS JOIN LATERAL (
        SELECT name, count(*) AS depth, min(due) AS due, sum(count(*)) OVER () AS of_all
        FROM (
            SELECT name, {due} AS due
            FROM {schema.}tasks AS task
            WHERE {include in_lane}
              AND {due} <= now()
            ORDER BY {due}, id
            LIMIT most + 1
        ) AS one
        GROUP BY name
    ) AS waiting
    WHERE lane.due <= now()
)
