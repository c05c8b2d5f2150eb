-- Which vantage saw a name differently from all others, when? (One place's trouble, or the first sign of everybody's.)
-- :from, :to
select alone.subject as name, alone.vantage, alone.verdict, alone.since, alone.until,
       (select string_agg(distinct o.vantage || ' ' || o.verdict, ', ') from v_state o
        where o.subject_kind = 'answer' and o.subject = alone.subject and o.resolver = alone.resolver and o.vantage <> alone.vantage
          and o.during && alone.during) as others
from v_state alone
where alone.subject_kind = 'answer' and alone.resolver = 'live' and alone.presence = 'offline'
  and alone.during && tstzrange(:'from'::timestamptz, :'to'::timestamptz)
  and not exists (select from v_state o
                  where o.subject_kind = 'answer' and o.subject = alone.subject and o.resolver = alone.resolver
                    and o.vantage <> alone.vantage and o.presence = 'offline' and o.during && alone.during)
order by alone.since;
