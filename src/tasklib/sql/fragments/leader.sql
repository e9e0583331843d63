-- Only the leader of the current term: an ex-leader's statement, however late it comes, finds no row here and changes
-- nothing. The lock keeps the lead from changing hands until this statement is committed.
leader AS (
    SELECT 1 FROM {schema.}leadership
    WHERE holder = %(holder)s AND term = %(term)s AND expires_at > now()
    FOR SHARE
)
