-- Which configuration was in force at this time, and which limits and services did it name?
-- :at
with that_day as (
    select number, at, how, by from v_config where at <= :'at'::timestamptz order by at desc limit 1
)
select t.number, t.at as since, t.how, t.by, c.kind, c.name, c.detail
from that_day t join v_configured c on c.number = t.number
where c.kind in ('service', 'policy')
order by c.kind, c.position;
