-- Which time is unknown: when did nobody judge, and when could a vantage not speak?
-- :from, :to
select 'nobody judged' as what, null as vantage, w.ended as from_at, w.next as to_at, w.next - w.ended as for_how_long
from (select until as ended, lead(began_at) over (order by began_at) as next from v_watch) as w
where w.next > w.ended + interval '1 second' and tstzrange(w.ended, w.next) && tstzrange(:'from'::timestamptz, :'to'::timestamptz)
union all
select verdict, vantage, since, until, coalesce(until, now()) - since
from v_state
where subject_kind = 'vantage' and verdict <> 'vantage_ok' and during && tstzrange(:'from'::timestamptz, :'to'::timestamptz)
order by from_at;
