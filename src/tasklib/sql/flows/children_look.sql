-- Whether a flow is finished; and how many signals its parent had been sent, as of the same snapshot.
SELECT (SELECT finished_at IS NOT NULL FROM {schema.}flows WHERE id = %(flow)s::text::uuid),
       (SELECT signals_sent FROM {schema.}tasks WHERE id = %(id)s::text::uuid)
