-- A durable task that was completed does everything again. Any other goes on from what it has on record, and has its
-- whole time once more.
forgotten_steps AS (
    DELETE FROM {schema.}steps AS step
    USING changed
    WHERE step.task = changed.id::uuid AND (changed.was = 'completed' OR step.kind = 'deadline')
)
