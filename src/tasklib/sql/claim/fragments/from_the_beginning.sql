known AS (
    SELECT '' COLLATE "C" AS queue, '' COLLATE "C" AS lane, '{}'::text[] COLLATE "C" AS required_capabilities, 0 AS priority
    WHERE false
),
{include lanes}
