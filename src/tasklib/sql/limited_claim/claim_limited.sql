-- Lease up to `limit` due tasks that wait behind limits, where all their limits have room. The function chooses and locks
-- them; its own statements see more than this one does, so a task that was inserted or taken from a lost worker meanwhile
-- is left: `next_in` below 0 says so, for no other worker may have seen it while it was locked. Its places stay, with a
-- token that is one ahead. From here on the lane of a task says that it is
-- behind limits, also if only its queue is. Rows without an id: see tasklib_admit.
WITH admitted AS MATERIALIZED (
    SELECT chosen.*, now() + (100 - chosen.height) * interval '1 microsecond' AS started_at
    FROM {include thresholds}
    CROSS JOIN LATERAL {schema.}tasklib_admit(
        %(limit)s::int, %(queues)s::text[], %(names)s::text[], %(capabilities)s::text[], medium_after, high_after,
        %(from_queue)s::text, %(from_lane)s::text, %(from_taken)s::int) AS chosen
),
leased AS (
    UPDATE {schema.}tasks AS task
    {include lease},
        lane = CASE WHEN task.lane >= E'\x01' AND task.lane < E'\x02' THEN task.lane ELSE E'\x01' END,
        started_at = admitted.started_at
    FROM admitted
    WHERE task.id = ANY (ARRAY[admitted.task])
      AND COALESCE(task.state, '') IN ('pending', 'failed')
    RETURNING {include leased}, admitted.height, task.lane, NULL::int AS taken, NULL::float8 AS next_in
)
SELECT * FROM leased
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, at_queue, NULL, NULL, NULL, NULL, at_lane, at_taken,
       CASE WHEN (SELECT count(task) FROM admitted) > (SELECT count(*) FROM leased) THEN -1 ELSE next_in END
FROM admitted
WHERE task IS NULL
