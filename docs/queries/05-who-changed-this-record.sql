-- Who changed this record, when, from what to what, and on what evidence?
-- :name
select at, what, by, purpose, before, after, driver, status, verified_at, reason ->> 'because' as because,
       incident_id, cardinality(evidence) as observations_cited
from v_change
where name = :'name'
order by at;
