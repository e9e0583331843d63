-- Tasks `near` of the flow `wanted.id` with ids below its own: from the first one on that the row of the flow names.
near.flow = wanted.id
    AND near.id < wanted.id
    AND near.id >= COALESCE((SELECT first_task FROM {schema.}flows WHERE flows.id = wanted.id),
                            '00000000-0000-0000-0000-000000000000')
