-- In how many seconds the next task of this worker's lanes becomes due; null if none waits.
WITH RECURSIVE {include lanes}
SELECT extract(epoch FROM min(due) - now())::float8 FROM ours
