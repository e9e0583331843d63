-- Whether a worker that came over HTTP may be given tasks: it is not declared dead, and its token still opens. The nil
-- id stands for no token, which is good as long as there has never been one.
SELECT EXISTS (
    SELECT FROM {schema.}workers AS w
    WHERE w.id = %(id)s
      AND w.status <> 'dead'
      AND CASE WHEN w.token_id = '00000000-0000-0000-0000-000000000000'
               THEN NOT EXISTS (SELECT FROM {schema.}api_tokens)
               ELSE EXISTS (SELECT FROM {schema.}api_tokens AS t WHERE t.id = w.token_id AND {include token_usable})
          END)
