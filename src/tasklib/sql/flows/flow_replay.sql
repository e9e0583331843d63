-- Let a flow go on after a failure or a cancel; flow_replay_tasks.sql does it, page by page.
WITH wanted AS (SELECT %(id)s::text::uuid AS id),
changed AS (
    UPDATE {schema.}flows AS flow
    SET cancel_requested_at = NULL
    WHERE id = %(id)s::text::uuid AND {include owned}
      -- Not one that retention is just deleting.
      AND EXISTS (SELECT FROM {schema.}gates AS gate WHERE gate.flow = flow.id AND gate.kind = 'flow')
      AND EXISTS (SELECT FROM wanted CROSS JOIN LATERAL {include of_flow} AS member
                  JOIN {schema.}tasks AS task ON task.id = ANY (ARRAY[member.id])
                  WHERE task.state IN ('dead_letter', 'cancelled'))
    RETURNING id
),
{include audited}
SELECT id::text FROM changed
