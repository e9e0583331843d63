-- The beginning of an attempt after a crash is on record (begin.sql): of those it is known. Of the others, see held.sql.
CASE WHEN {include begun} THEN true
                WHEN task.crash_count > 0 THEN false
                ELSE held.place <= COALESCE(held.may_begin, held.place) END
