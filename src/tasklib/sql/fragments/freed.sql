-- Attempts that ended, the CTE `ended` (id, state), give back their places in limits; a trigger wakes workers for them. In
-- a serial queue, a task that failed may keep its place until it is finished. Without limits this is one look at an empty
-- table.
freed AS (
    DELETE FROM {schema.}places AS place
    USING ended
    WHERE place.task = ended.id
      AND ended.state <> 'running'
      AND (NOT place.held OR ended.state IN ('completed', 'cancelled', 'dead_letter'))
)
