-- What did people do in this time?
-- :from, :to
select at, by, did, what, incident_id, plan_id
from v_audit
where at >= :'from'::timestamptz and at < :'to'::timestamptz
order by at;
