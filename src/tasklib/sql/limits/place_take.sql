-- A place, or a start, of a limit for a running task, by the attempt that holds it. No row: it is another attempt's by now.
SELECT place.outcome, place.next_in
FROM {schema.}tasks AS task
CROSS JOIN LATERAL {schema.}tasklib_take_place(
    task.id, task.lease_token, %(limit)s, %(key)s, %(cost)s::int, %(block)s::int, %(nested)s::int) AS place
WHERE task.id = %(id)s::text::uuid
  AND {still_running}
  AND task.lease_token = %(token)s::bigint
  AND task.worker_id = %(worker)s
