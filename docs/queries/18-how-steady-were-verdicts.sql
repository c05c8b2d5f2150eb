-- Which verdicts changed most often: what flaps?
-- :from, :to
select subject_kind, subject, vantage, resolver, count(*) as changes, count(*) filter (where presence = 'offline') as times_offline,
       min(lasted) as shortest, mode() within group (order by verdict) as most_often
from v_verdict
where at >= :'from'::timestamptz and at < :'to'::timestamptz
group by subject_kind, subject, vantage, resolver
having count(*) > 1
order by changes desc, subject, vantage
limit 20;
