{include set_aside} AND 'cancelled' = ANY (%(states)s::text[])
    AND (task.state, task.id) > ('cancelled', {include lowest_id})
    AND (task.state, task.id) < ('cancelled', {include highest_id})
