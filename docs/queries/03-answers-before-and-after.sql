-- What did each resolver answer for this name before this time (a switch, a pin, a repointing), and what after it?
-- :name, :at
select asked.vantage, asked.resolver, before.addresses as before, after.addresses as after,
       after.since - :'at'::timestamptz as changed_after
from (select distinct vantage, resolver from v_answer where name = :'name' and family = 4) as asked
left join lateral (
    select addresses from v_answer b
    where b.name = :'name' and b.family = 4 and b.vantage = asked.vantage and b.resolver = asked.resolver
      and b.since < :'at'::timestamptz
    order by b.since desc limit 1
) as before on true
left join lateral ( -- null: the answer stayed the same for ten minutes
    select addresses, since from v_answer a
    where a.name = :'name' and a.family = 4 and a.vantage = asked.vantage and a.resolver = asked.resolver
      and a.since >= :'at'::timestamptz and a.since < :'at'::timestamptz + interval '10 minutes'
    order by a.since limit 1
) as after on true
order by asked.vantage, asked.resolver;
