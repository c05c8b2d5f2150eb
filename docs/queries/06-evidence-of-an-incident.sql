-- What does this incident rest on?
-- :incident
select says, at, vantage, kind, subject, resolver, address, outcome, attempts_connected || ' of ' || attempts as connected, duration_ms
from v_evidence
where incident_id = :'incident'
order by at, observation_id
limit 40;
