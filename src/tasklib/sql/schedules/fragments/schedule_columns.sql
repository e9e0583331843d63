name, task, spec, template, source, revision, fired, skipped, created_at, changed_at, next_slot, last_slot, waiting_slot,
    last_task, paused_at, paused_by, pause_note, resumed_at, retired_at, module, deployed_at
