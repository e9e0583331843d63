-- In how many seconds the next task of this worker's lanes becomes due; null if none waits. And which transactions are
-- under way: those from the first number on, but none from the second on.
WITH RECURSIVE {include lanes}
SELECT extract(epoch FROM min(due) - now())::float8,
       pg_snapshot_xmin(pg_current_snapshot())::text::bigint, pg_snapshot_xmax(pg_current_snapshot())::text::bigint
FROM ours
