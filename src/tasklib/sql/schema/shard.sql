SELECT {schema.}tasklib_shard()
