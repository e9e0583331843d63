-- The sealed tasks of one key, in the order of their ids, with the steps and signals that hold ciphertext or a pointer.
SELECT id::text, name, state, lease_token, kwargs::text, result::text, error, progress::text, signals_sent,
       (SELECT json_agg(json_build_array(kind, steps.name, steps.result::text))::text
        FROM {schema.}steps
        WHERE steps.task = tasks.id AND steps.result -> 'value' ?| ARRAY['$sealed', '$blob']),
       (SELECT json_agg(json_build_array(seq, payload::text))::text
        FROM {schema.}signals
        WHERE signals.task = tasks.id AND payload ? '$sealed')
FROM {schema.}tasks
WHERE key_id = %(key_id)s
  AND id > %(after)s::text::uuid
ORDER BY tasks.id -- not the text: the index has the id
LIMIT %(limit)s
