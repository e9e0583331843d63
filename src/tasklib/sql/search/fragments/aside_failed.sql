{include set_aside} AND 'failed' = ANY (%(states)s::text[])
    AND (task.state, task.id) > ('failed', {include lowest_id})
    AND (task.state, task.id) < ('failed', {include highest_id})
