-- Which incidents were there in this time, for how long, and what was done?
-- :from, :to
select id, opened_at, lasted, kind, coalesce(vantage, 'everywhere') as place, subject, members, changes_made
from v_incident
where opened_at < :'to'::timestamptz and coalesce(closed_at, now()) >= :'from'::timestamptz
order by opened_at;
