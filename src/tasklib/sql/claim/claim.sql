-- Lease up to `limit` due tasks of the lanes this worker serves: by effective priority, then first come first served.
WITH RECURSIVE {include lanes},
-- From the beginning of each lane.
heads AS (
    SELECT *, '-infinity'::timestamptz AS after_due, '00000000-0000-0000-0000-000000000000'::uuid AS after_id FROM ours
),
{include take}
