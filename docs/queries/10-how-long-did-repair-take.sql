-- How long did each repair take: from the opening to the change, and from the change to the proof?
-- :from, :to
select p.id as plan, p.incident_id as incident, p.purpose, p.name, p.status, p.created_at - i.opened_at as opened_to_plan,
       p.apply_s as plan_to_change_s, p.proof_s as change_to_proof_s
from v_plan p join v_incident i on i.id = p.incident_id
where p.applied_at >= :'from'::timestamptz and p.applied_at < :'to'::timestamptz
order by p.applied_at;
