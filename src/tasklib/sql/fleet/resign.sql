-- Give the lead up at once, so that the next candidate need not wait for it to run out. By the name alone, which belongs
-- to one start of one process: it may not know in which term it leads.
UPDATE {schema.}leadership SET expires_at = now() WHERE holder = %(holder)s
