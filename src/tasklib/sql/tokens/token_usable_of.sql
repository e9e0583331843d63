SELECT prefix FROM {schema.}api_tokens WHERE prefix = ANY (%(prefixes)s::text[]) AND {include token_usable}
