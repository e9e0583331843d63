state = 'closed', since = now(), until = NULL, passed = 0, probe_ids = '{}', probe_tokens = '{}', changed_at = now(),
        changed_by = ''
