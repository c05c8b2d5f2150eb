-- What happened in this incident, step by step?
-- :incident
select at, at - first_value(at) over (order by at, rank, item) as after, source, what, vantage, plan_id
from v_timeline
where incident_id = :'incident'
order by at, rank, item;
