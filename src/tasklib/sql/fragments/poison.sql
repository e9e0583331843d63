-- A task given up as poison says in its error what happened before: a line for each of its latest attempts, cut to a
-- size. The last line is the verdict, because that is the line that lists show and fingerprints are made of. Nothing
-- is cast and nothing assumed about the history: one that was changed by hand must not stop the recovery of the others.
CASE WHEN attempt.poison THEN concat_ws(E'\n',
        (SELECT string_agg(concat(
                    concat_ws(', ', 'attempt ' || (entry ->> 'attempt'), entry ->> 'ended_at', entry ->> 'outcome',
                              'worker ' || left(entry ->> 'worker', 100)), ': ',
                    left(split_part(rtrim(entry ->> 'error', E' \t\r\n'), E'\n', -1), 200)), E'\n' ORDER BY place)
         FROM jsonb_path_query(task.history, '$[last - 19 to last]') WITH ORDINALITY AS earlier (entry, place)),
        format('%%s; given up as poison after %%s crashes', rtrim(attempt.error, E' \t\r\n'), task.crash_count + 1))
    ELSE attempt.error END
