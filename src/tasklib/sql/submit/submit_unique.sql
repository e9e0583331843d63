-- Insert tasks, each unless a task with its merge key exists: that one is returned.
WITH {include merging},
met AS (
    SELECT given_id, id, 'held' AS what, submitted_by FROM held
),
{include merged}
