-- Which addresses were unroutable from one site only, in this time: dead there while another vantage reached them?
-- :from, :to
select here.address, here.vantage as only_from, count(*) as times, sum(least(coalesce(here.until, now()), :'to'::timestamptz)
       - greatest(here.since, :'from'::timestamptz)) as for_how_long, string_agg(distinct here.verdict, ' ') as verdicts
from v_reach here
where here.during && tstzrange(:'from'::timestamptz, :'to'::timestamptz) and here.verdict in ('addr_silent', 'addr_refused', 'addr_open_but_dead')
  and exists (select from v_reach other where other.address = here.address and other.vantage <> here.vantage
              and other.reached and other.during && here.during)
  and not exists (select from v_reach other where other.address = here.address and other.vantage <> here.vantage
                  and other.verdict in ('addr_silent', 'addr_refused', 'addr_open_but_dead') and other.during && here.during)
group by here.address, here.vantage
order by for_how_long desc;
