-- Insert one task without an idempotency key.
{include submit_row}
-- The id was made by the client, so a submission whose answer was lost can be sent again.
ON CONFLICT (id) DO NOTHING
