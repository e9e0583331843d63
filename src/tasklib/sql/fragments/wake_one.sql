{schema.}tasklib_wake_for(task.queue, task.name, task.required_capabilities, 1)::text
