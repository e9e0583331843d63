SELECT EXISTS (SELECT FROM {schema.}api_tokens WHERE {include token_usable})
