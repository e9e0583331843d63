SELECT {schema.}tasklib_signal(%(id)s::text::uuid, %(signal)s::text, %(payload)s::text::jsonb, %(key)s::text, %(sender)s::text,
                                %(sealed_with)s::text)
