-- How many tasks whose results are not stored yet a worker may have begun; null: all it holds.
UPDATE {schema.}worker_registrations SET may_begin = %(count)s::int WHERE id = %(id)s
