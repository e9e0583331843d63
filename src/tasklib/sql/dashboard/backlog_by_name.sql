-- What waits under each name, by level. Counted up to a limit in all, of which each lane has an equal share.
WITH RECURSIVE {include level_lanes},
{include waiting_by_name}
SELECT name, level, sum(depth)::bigint, bool_or(is_capped), extract(epoch FROM now() - min(due))::float8
FROM counted
GROUP BY name, level
ORDER BY name, array_position('{high,medium,low}'::text[], level)
