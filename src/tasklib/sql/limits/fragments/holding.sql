-- Whether `holder`, the task of a `place`, holds it: it runs with that token, or keeps it until its retry.
(holder.lease_token = place.token AND holder.state = 'running'
       OR place.held AND holder.state IN ('pending', 'failed') AND holder.lease_token IN (place.token, place.token - 1))
