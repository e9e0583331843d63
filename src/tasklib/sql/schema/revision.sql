SELECT max(version_num) FROM {schema.}tasklib_version
