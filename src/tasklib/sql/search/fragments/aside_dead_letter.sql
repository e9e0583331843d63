{include set_aside} AND 'dead_letter' = ANY (%(states)s::text[])
    AND (task.state, task.id) > ('dead_letter', {include lowest_id})
    AND (task.state, task.id) < ('dead_letter', {include highest_id})
