task.state IN ('failed', 'cancelled', 'dead_letter')
