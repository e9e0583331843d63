SELECT EXISTS (SELECT FROM {schema.}api_tokens)
