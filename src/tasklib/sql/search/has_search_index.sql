-- Whether an operator has created this optional index, and it is complete.
SELECT count(*) > 0 FROM pg_index
WHERE indexrelid = to_regclass(%(index)s) AND indrelid = '{schema.}tasks'::regclass AND indisvalid
