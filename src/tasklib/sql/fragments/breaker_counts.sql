-- What a breaker counts: attempts that returned, and those whose function failed. Not those that asked for a retry, were
-- rejected or throttled: that is what the task said itself.
outcome = 'completed' OR outcome IN ('failed', 'dead_letter') AND reason IN ('error', 'timeout', 'crash')
