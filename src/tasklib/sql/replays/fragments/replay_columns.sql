replay.id, replay.status, replay.conditions, replay.created_at, replay.created_by, replay.per_minute, replay.canary,
       replay.canary_task, replay.reason, replay.expected, replay.expected_is_capped, replay.replayed,
       replay.completed, replay.failed, replay.dropped, replay.ended_at
