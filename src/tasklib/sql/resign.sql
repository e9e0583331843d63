-- Give the lead up at once, so that the next worker need not wait for it to run out.
UPDATE {schema.}leadership SET expires_at = now() WHERE holder = %(holder)s AND term = %(term)s
