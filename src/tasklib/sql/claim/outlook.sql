-- In how many seconds the next task of this worker's lanes becomes due; null if none waits. And the oldest transaction
-- that is under way.
WITH RECURSIVE {include lanes}
SELECT extract(epoch FROM min(due) - now())::float8, pg_snapshot_xmin(pg_current_snapshot())::text::bigint
FROM ours
