-- The second look after a fold: which of these gates have arrivals that have to be counted? Far cheaper than a fold that
-- finds none.
SELECT gate.id::text FROM {schema.}gates AS gate
WHERE gate.id = ANY (%(gates)s::text::uuid[]) AND {include worth_counting}
