-- What waits in each lane, counted up to a limit per lane and in all. Rows that are finished, not
-- due or beyond the limits are not read.
{include lanes_with_tasks},
seen AS MATERIALIZED (
    SELECT *, {include level} AS level FROM lanes LIMIT %(most_lanes)s
)
