-- Failed tasks as a range of (state, id): were the state known to be one, the planner might take the primary key.
state IN ('failed', 'cancelled', 'dead_letter')
         AND (state, id) > ('failed', '00000000-0000-0000-0000-000000000000')
         AND (state, id) < ('failed', 'ffffffff-ffff-ffff-ffff-ffffffffffff')
