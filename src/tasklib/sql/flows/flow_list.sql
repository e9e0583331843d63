-- Flows, the newest first, each with how many of its tasks have ended. Arrivals that are not counted yet are added.
SELECT flow.id::text, flow.name, flow.created_at, flow.cancel_requested_at, flow.finished_at, flow.submitted_by,
       COALESCE(gate.expected, 0) + COALESCE(arrived.expected, 0), COALESCE(gate.completed, 0) + COALESCE(arrived.completed, 0),
       COALESCE(gate.failed, 0) + COALESCE(arrived.failed, 0), now()
FROM {schema.}flows AS flow
LEFT JOIN {schema.}gates AS gate ON gate.flow = flow.id AND gate.kind = 'flow'
LEFT JOIN LATERAL {include uncounted} AS arrived ON true
WHERE (%(id)s::text IS NULL OR flow.id = %(id)s::text::uuid)
  AND (%(after)s::text IS NULL OR flow.id < %(after)s::text::uuid)
  AND (%(name)s::text IS NULL OR flow.name = %(name)s::text)
  AND (%(unfinished)s::bool IS NOT TRUE OR flow.finished_at IS NULL)
  AND {include owned}
ORDER BY flow.id DESC
LIMIT %(limit)s
