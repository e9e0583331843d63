-- Limits that functions are declared with and that bound nothing, for no key either. With `declared`, an operator has
-- removed the bounds.
SELECT use ->> 'limit', array_agg(DISTINCT limited.name ORDER BY limited.name), bool_or(bound.declared IS NOT NULL)
FROM {schema.}limited_names AS limited
CROSS JOIN LATERAL jsonb_array_elements(limited.uses) AS use
LEFT JOIN {schema.}limits AS bound ON bound.name = use ->> 'limit'
WHERE use ? 'limit'
  AND COALESCE(bound.max_running, bound.rate) IS NULL
  AND NOT EXISTS (SELECT FROM {schema.}limits AS of_one_key
                  WHERE starts_with(of_one_key.name, (use ->> 'limit') || ':')
                    AND COALESCE(of_one_key.max_running, of_one_key.rate) IS NOT NULL)
GROUP BY 1
ORDER BY 1
