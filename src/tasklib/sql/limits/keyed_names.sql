-- Of these names, those whose limits, serial key or share are values of an argument: their lanes are made of the arguments.
SELECT name
FROM {schema.}limited_names
WHERE name = ANY (%(names)s::text[])
  AND EXISTS (SELECT FROM jsonb_array_elements(uses) AS use
              WHERE COALESCE(use ->> 'key', use ->> 'serial', use ->> 'share') IS NOT NULL)
