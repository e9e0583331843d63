-- Let a flow go on after a failure or a cancel; flow_replay_tasks.sql does it, page by page.
WITH changed AS (
    UPDATE {schema.}flows AS flow
    SET cancel_requested_at = NULL
    WHERE id = %(id)s::text::uuid AND {include owned}
      AND EXISTS (SELECT FROM {schema.}tasks AS task
                  WHERE task.flow = flow.id AND task.state IN ('dead_letter', 'cancelled'))
    RETURNING id
),
{include audited}
SELECT id::text FROM changed
