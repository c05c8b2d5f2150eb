-- When did each place's own resolver serve what was set, and could it be used from there?
-- :incident
select plan_id, vantage, seen_at, after_s, connection_id is not null as usable_from_there
from v_proof
where incident_id = :'incident'
order by plan_id, seen_at;
