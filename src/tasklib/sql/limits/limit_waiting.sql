-- How many due tasks are behind each limit: counted lane by lane, of each up to `most_of_one`. Tasks that belong behind a
-- limit and are not in its lane yet are not counted.
WITH RECURSIVE {include lanes_with_tasks},
counted AS MATERIALIZED (
    SELECT lane.queue, lane.lane, count(*) AS waiting
    FROM (SELECT * FROM lanes LIMIT %(most_lanes)s) AS lane
    CROSS JOIN LATERAL (
        SELECT
        FROM {schema.}tasks AS task
        WHERE {include in_lane}
          AND {due} <= now()
        ORDER BY {due}, id
        LIMIT %(most_of_one)s
    ) AS task
    GROUP BY lane.queue, lane.lane
)
SELECT limits.name, sum(waiting)::bigint
FROM {schema.}limits
JOIN counted ON CASE split_part(limits.name, ':', 1)
        WHEN 'queue' THEN limits.name = 'queue:' || counted.queue
        WHEN 'serial' THEN limits.name = 'serial:' || counted.queue AND counted.lane LIKE E'\x01k%%'
        WHEN 'share' THEN CASE WHEN limits.name = 'share' THEN counted.lane LIKE E'%%\x01s%%'
                               ELSE position(E'\x01s' || substr(limits.name, 7) || E'\x01' IN counted.lane || E'\x01') > 0 END
        ELSE position(E'\x01l' || limits.name || E'\x02' IN counted.lane) > 0
             OR position(E'\x01l' || regexp_replace(limits.name, ':', E'\x02') || E'\x01' IN counted.lane || E'\x01') > 0 END
GROUP BY limits.name
