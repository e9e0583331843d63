-- The line of a traceback that says what went wrong.
split_part(rtrim(error, E' \t\r\n'), E'\n', -1)
