-- The second look after a fold: which of these gates have arrivals that are not counted? Far cheaper than a fold that
-- finds none.
SELECT DISTINCT gate::text FROM {schema.}arrivals WHERE gate = ANY (%(gates)s::text::uuid[])
