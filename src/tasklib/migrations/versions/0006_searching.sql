-- What failed, was cancelled or given up, the newest first. Written only by the tasks it speaks of: one that completes
-- pays nothing for it.
CREATE INDEX tasks_set_aside ON {schema.}tasks (state, id) WHERE state IN ('failed', 'cancelled', 'dead_letter');
