-- Which were ours; null says all, so that the usual answer is short. And in which isolation: a transactional task, whose
-- completion is part of its own transaction, may have changed that.
SELECT CASE WHEN count(*) < cardinality(%(ids)s::uuid[]) THEN COALESCE(array_agg(id::text), '{}') END,
       current_setting('transaction_isolation')
