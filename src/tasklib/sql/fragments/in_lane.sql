task.state IN ('pending', 'failed') AND task.waits_for IS NULL
      AND task.queue = lane.queue
      AND task.lane = lane.lane
      AND task.required_capabilities = lane.required_capabilities
      AND task.priority = lane.priority
