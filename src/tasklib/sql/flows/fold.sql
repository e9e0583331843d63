-- Count arrivals into their gates, decide gates, and move the tasks that wait at decided gates, a page of them at a
-- time. The gate's lock makes it one at a time; a gate that another session has locked is left out: that session looks
-- again after its commit, and sees what was committed before it was left out. So every gate that was locked here is
-- looked at again, and one without arrivals is not locked. An arrival is counted by the statement that deletes it: once,
-- whatever the snapshot was. See docs/explanation/flows.md.
WITH wanted AS (
    SELECT unnest(%(gates)s::text::uuid[]) AS id
    UNION
    -- Without names: whatever was left behind by a process that died before it folded.
    -- Not too many at once: the time of a fold grows faster than the number of gates.
    (SELECT DISTINCT gate
     FROM (SELECT gate FROM {schema.}arrivals WHERE %(gates)s::text IS NULL ORDER BY gate LIMIT %(most)s::int) AS oldest
     LIMIT %(most_gates)s::int)
    UNION
    (SELECT id FROM {schema.}gates
     WHERE %(gates)s::text IS NULL AND NOT released AND (opened_at IS NOT NULL OR failed_at IS NOT NULL)
     ORDER BY id LIMIT %(most_gates)s::int)
),
locked AS MATERIALIZED (
    SELECT gate.id, gate.flow, gate.kind, gate.policy, gate.expected, gate.sealed, gate.completed, gate.failed,
           gate.excused, gate.opened_at, gate.failed_at, gate.culprit
    FROM {schema.}gates AS gate
    WHERE gate.id = ANY (ARRAY(SELECT id FROM wanted))
      AND CASE WHEN %(gates)s::text IS NOT NULL THEN {include worth_counting}
               ELSE EXISTS (SELECT FROM {schema.}arrivals WHERE arrivals.gate = gate.id)
                    OR (NOT gate.released AND (gate.opened_at IS NOT NULL OR gate.failed_at IS NOT NULL)) END
    ORDER BY gate.id
    FOR UPDATE SKIP LOCKED
),
counted_here AS (
    DELETE FROM {schema.}arrivals AS arrival
    -- Gate by gate along the index: a scan in the order of ids would read the arrivals of all gates.
    USING (SELECT mine.place, locked.policy
           FROM locked
           CROSS JOIN LATERAL (
               SELECT oldest.id AS place FROM {schema.}arrivals AS oldest
               WHERE oldest.gate = locked.id
               ORDER BY oldest.gate, oldest.id
               LIMIT %(most)s::int) AS mine) AS taken
    WHERE arrival.id = ANY (ARRAY[taken.place])
    RETURNING arrival.id, arrival.gate, arrival.completed, arrival.failed, arrival.culprit, arrival.expected,
              COALESCE(taken.policy -> 'optional' ? arrival.node, false) AS is_excused
),
-- A flow that was deleted meanwhile.
orphaned AS (
    DELETE FROM {schema.}arrivals AS arrival
    WHERE gate = ANY (ARRAY(SELECT id FROM wanted))
      AND NOT EXISTS (SELECT FROM {schema.}gates WHERE gates.id = arrival.gate)
),
sums AS (
    SELECT arrival.gate, sum(arrival.completed)::bigint AS completed, sum(arrival.failed)::bigint AS failed,
           sum(arrival.expected)::bigint AS expected,
           (sum(arrival.failed) FILTER (WHERE is_excused))::bigint AS excused,
           (array_agg(arrival.culprit ORDER BY arrival.id)
                FILTER (WHERE arrival.culprit IS NOT NULL AND NOT is_excused))[1] AS culprit
    FROM counted_here AS arrival
    GROUP BY arrival.gate
),
added AS (
    SELECT locked.id, locked.flow, locked.kind, locked.policy, locked.sealed, locked.opened_at, locked.failed_at,
           -- What a task spawned is counted no later than the end of that task: arrivals are taken in their order.
           locked.expected + COALESCE(sums.expected, 0) AS expected, locked.completed + COALESCE(sums.completed, 0) AS completed,
           locked.failed + COALESCE(sums.failed, 0) AS failed, locked.excused + COALESCE(sums.excused, 0) AS excused,
           COALESCE(locked.culprit, sums.culprit) AS culprit
    FROM locked
    LEFT JOIN sums ON sums.gate = locked.id
),
-- An opened gate stays open. The gate of the whole flow is judged anew each time: a replay makes the flow unfinished.
judged AS MATERIALIZED (
    SELECT added.*,
           CASE
               WHEN opened_at IS NOT NULL AND kind <> 'flow' THEN 'open'
               WHEN policy ->> 'kind' = 'settled' AND sealed AND completed + failed >= expected THEN 'open'
               WHEN policy ->> 'kind' = 'all' AND failed > excused THEN 'failed'
               WHEN policy ->> 'kind' = 'all' AND sealed AND completed + excused >= expected THEN 'open'
               WHEN policy ->> 'kind' = 'at_least' AND sealed AND completed >= needed THEN 'open'
               WHEN policy ->> 'kind' = 'at_least' AND sealed AND expected - failed < needed THEN 'failed'
           END AS verdict
    FROM added
    CROSS JOIN LATERAL (
        SELECT COALESCE((policy ->> 'count')::bigint, ceil((policy ->> 'share')::numeric * expected)::bigint) AS needed
    ) AS policy_of
),
-- A gate that had failed and doesn't any more, because what failed was replayed: the tasks it cancelled wait again.
-- Only then, by a later look, it may open.
page AS MATERIALIZED (
    SELECT judged.id AS gate, offered.id, 'restored' AS becomes
    FROM judged
    CROSS JOIN LATERAL (
        SELECT task.id FROM {schema.}tasks AS task
        -- An expression, so that no index fits but that of the gate: another one has all cancelled tasks.
        WHERE task.waits_for = judged.id AND task.state || '' = 'cancelled' AND task.cancel_requested_at IS NULL
        ORDER BY task.id LIMIT %(page)s::int FOR UPDATE SKIP LOCKED
    ) AS offered
    WHERE judged.failed_at IS NOT NULL AND judged.verdict IS DISTINCT FROM 'failed'
    UNION ALL
    SELECT judged.id, offered.id, judged.verdict
    FROM judged
    CROSS JOIN LATERAL (
        SELECT task.id FROM {schema.}tasks AS task
        WHERE task.waits_for = judged.id AND task.state IN ('pending', 'failed')
        ORDER BY task.id LIMIT %(page)s::int FOR UPDATE SKIP LOCKED
    ) AS offered
    WHERE judged.verdict = 'failed' OR (judged.verdict = 'open' AND judged.failed_at IS NULL)
),
opened AS (
    UPDATE {schema.}tasks AS task
    -- It waits in its lane from now on: at the gate it didn't earn priority.
    SET waits_for = NULL, scheduled_at = (SELECT GREATEST(task.scheduled_at, now()))
    FROM page
    WHERE task.id = ANY (ARRAY[page.id]) AND page.becomes = 'open'
    RETURNING task.queue, task.name, task.required_capabilities
),
changed AS (
    UPDATE {schema.}tasks AS task
    SET state = 'cancelled', completed_at = now(), next_retry_at = NULL,
        error = (SELECT format('UpstreamFailed: cancelled because %%s of the same flow did not complete%%s',
                       COALESCE(format('%%s (task %%s)', culprit.name, culprit.id), 'another task'),
                       COALESCE(format(': it ended as %%s', culprit.state), '')))
    FROM page
    JOIN judged ON judged.id = page.gate
    LEFT JOIN {schema.}tasks AS culprit ON culprit.id = judged.culprit
    WHERE task.id = ANY (ARRAY[page.id]) AND page.becomes = 'failed'
    RETURNING page.gate, judged.culprit, task.node, task.reports_to, task.name, task.queue, task.priority,
              task.state AS outcome, '' AS reason
),
{include counted},
revived AS (
    UPDATE {schema.}tasks AS task
    SET state = 'pending', completed_at = NULL, error = NULL
    FROM page
    WHERE task.id = ANY (ARRAY[page.id]) AND page.becomes = 'restored'
    RETURNING page.gate, 'cancelled' AS was, task.node, task.reports_to, NULL::uuid AS waits_for
),
{include unreported},
-- Whether all tasks that had to move did: others may be locked, or beyond this page.
moved AS MATERIALIZED (
    SELECT judged.*,
           CASE
               -- Not decided, nor was it before: none have to, and there may be very many.
               WHEN judged.verdict IS NULL AND judged.failed_at IS NULL THEN true
               ELSE (SELECT count(*) FROM page WHERE page.gate = judged.id)
                    = (SELECT count(*) FROM (
                           SELECT FROM {schema.}tasks AS task
                           WHERE task.waits_for = judged.id
                             AND CASE WHEN judged.verdict = 'failed' OR (judged.verdict = 'open' AND judged.failed_at IS NULL)
                                      THEN task.state IN ('pending', 'failed')
                                      ELSE task.state = 'cancelled' AND task.cancel_requested_at IS NULL END
                           LIMIT %(page)s::int + 1) AS waiting)
           END AS is_all
    FROM judged
),
-- What was cancelled here names the first culprit to its own gates, not itself.
passed_on AS (
    INSERT INTO {schema.}arrivals (gate, node, failed, culprit)
    SELECT next_gate, node, count(*), (array_agg(culprit))[1]
    FROM changed
    CROSS JOIN LATERAL unnest(reports_to) AS next_gate
    WHERE reports_to IS NOT NULL
    GROUP BY next_gate, node
    UNION ALL
    -- There is more to do here. If the rest is locked by another transaction, the leader's sweep comes back to it.
    SELECT moved.id, NULL, 0, NULL::uuid
    FROM moved
    WHERE CASE WHEN is_all THEN failed_at IS NOT NULL AND verdict = 'open'
               ELSE EXISTS (SELECT FROM page WHERE page.gate = moved.id) END
),
-- Flows that have ended, or go on again; and those that are cancelled because the task that waits for them has failed or
-- was cancelled. Locked in one order, so that two folds can't deadlock.
turned AS MATERIALIZED (
    SELECT * FROM (
        SELECT flow.id, flow.parent, decided.is_over, decided.is_orphan
        FROM (SELECT judged.flow, bool_or(COALESCE(verdict = 'open', false)) FILTER (WHERE kind = 'flow') AS is_over,
                     bool_or(COALESCE(verdict = 'failed', false)) FILTER (WHERE kind = 'parent') AS is_orphan
              FROM judged
              WHERE kind IN ('flow', 'parent')
              GROUP BY judged.flow) AS decided
        JOIN {schema.}flows AS flow ON flow.id = decided.flow
        WHERE decided.is_over <> (flow.finished_at IS NOT NULL)
           OR (decided.is_orphan AND flow.finished_at IS NULL AND flow.cancel_requested_at IS NULL)
        ORDER BY flow.id
        FOR NO KEY UPDATE OF flow
    ) AS locked
),
-- The durable tasks that wait for them. As by a signal: a row is locked before it is looked at, and a suspension that
-- comes later notices the number. One that another transaction has locked, such as one that sends it a signal, must not
-- hold up other flows: its flow ends by a later sweep.
told AS MATERIALIZED (
    SELECT * FROM (
        SELECT task.id, task.state = 'pending' AND ':children' = ANY (task.awaited_signals)
                        AND COALESCE(task.next_retry_at, task.scheduled_at) > now() AS waits
        FROM turned
        JOIN {schema.}tasks AS task ON task.id = turned.parent
        WHERE turned.is_over
        ORDER BY task.id
        FOR NO KEY UPDATE OF task SKIP LOCKED
    ) AS locked
),
put_off AS MATERIALIZED (
    SELECT turned.id FROM turned
    WHERE turned.is_over AND turned.parent NOT IN (SELECT id FROM told)
      AND EXISTS (SELECT FROM {schema.}tasks WHERE tasks.id = turned.parent)
),
finished AS (
    UPDATE {schema.}flows AS flow
    SET finished_at = (SELECT CASE WHEN turned.is_over THEN COALESCE(flow.finished_at, now())
                                   WHEN turned.is_over IS NULL THEN flow.finished_at END),
        -- What goes on after the end of the flow was replayed: a cancel before that doesn't concern it.
        cancel_requested_at = (
            SELECT CASE WHEN turned.is_orphan THEN COALESCE(flow.cancel_requested_at, now())
                        WHEN turned.is_over IS NOT FALSE THEN flow.cancel_requested_at END)
    FROM turned
    WHERE flow.id = turned.id AND turned.id NOT IN (SELECT id FROM put_off)
),
woken AS (
    UPDATE {schema.}tasks AS task
    SET signals_sent = COALESCE(task.signals_sent, 0) + 1,
        scheduled_at = (SELECT CASE WHEN told.waits THEN now() ELSE task.scheduled_at END)
    FROM told
    WHERE task.id = told.id
    RETURNING told.waits, task.queue, task.name, task.required_capabilities
),
written AS (
    UPDATE {schema.}gates AS gate
    SET expected = moved.expected,
        completed = moved.completed,
        failed = moved.failed,
        excused = moved.excused,
        opened_at = (SELECT CASE WHEN moved.verdict = 'open' AND moved.failed_at IS NULL
                                 THEN COALESCE(moved.opened_at, now()) END),
        failed_at = (SELECT CASE WHEN moved.verdict = 'failed' THEN COALESCE(moved.failed_at, now())
                                 WHEN NOT moved.is_all THEN moved.failed_at END),
        culprit = CASE WHEN moved.verdict = 'failed' OR NOT moved.is_all THEN moved.culprit END,
        released = moved.verdict IS NOT NULL AND moved.is_all
                   AND NOT (moved.kind = 'flow' AND moved.flow IN (SELECT id FROM put_off))
    FROM moved
    WHERE gate.id = moved.id
)
-- The gates to look at again.
SELECT again.gate::text, NULL FROM changed CROSS JOIN LATERAL unnest(changed.reports_to) AS again (gate)
UNION
SELECT again.gate::text, NULL FROM revived CROSS JOIN LATERAL unnest(revived.reports_to || revived.gate) AS again (gate)
UNION
SELECT id::text, NULL FROM locked WHERE %(gates)s::text IS NOT NULL OR id IN (SELECT gate FROM counted_here)
UNION
SELECT NULL, {schema.}tasklib_wake_for(queue, name, required_capabilities, count(*))::text
FROM (SELECT queue, name, required_capabilities FROM opened
      UNION ALL
      SELECT queue, name, required_capabilities FROM woken WHERE waits) AS due
GROUP BY queue, name, required_capabilities
