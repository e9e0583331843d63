-- Request a whole flow to stop; flow_cancel_tasks.sql does it, page by page.
WITH changed AS (
    UPDATE {schema.}flows
    SET cancel_requested_at = (SELECT COALESCE(cancel_requested_at, now()))
    WHERE id = %(id)s::text::uuid AND finished_at IS NULL AND {include owned}
    RETURNING id
),
{include audited}
SELECT id::text FROM changed
