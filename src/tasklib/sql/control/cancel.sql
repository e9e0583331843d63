-- What waits is cancelled at once; what runs is asked to stop, and its worker is told. Finished tasks don't come back,
-- nor do those that were asked before: with them nothing changes.
WITH changed AS (
    UPDATE {schema.}tasks AS task
    SET {include cancelled}
    WHERE id = %(id)s::text::uuid
      AND (state IN ('pending', 'failed') OR (state = 'running' AND cancel_requested_at IS NULL))
      AND {include owned}
    RETURNING state, CASE WHEN state = 'running' THEN {include wake} END,
              name, queue, priority, state AS outcome, '' AS reason
),
{include counted},
{include audited}
SELECT state FROM changed
