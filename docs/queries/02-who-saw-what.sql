-- Who saw what in these minutes? One row for each state that held in them, also the one they began with.
-- :from, :to
select subject_kind, subject, verdict, count(*) as places, string_agg(distinct vantage, ' ' order by vantage) as vantages
from v_state
where during && tstzrange(:'from'::timestamptz, :'to'::timestamptz) and subject_kind in ('answer', 'node')
group by subject_kind, subject, verdict
order by subject_kind, subject, places desc, verdict;
