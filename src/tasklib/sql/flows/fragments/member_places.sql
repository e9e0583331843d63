-- How far the CTE `members` came: the last task of each kind, and how many there were.
SELECT DISTINCT ON (kind) NULL AS state, kind, node, id::text, count(*) OVER (PARTITION BY kind) AS number
FROM members
ORDER BY kind, CASE WHEN kind = 'far' THEN node END DESC, id DESC
