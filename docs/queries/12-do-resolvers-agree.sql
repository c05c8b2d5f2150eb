-- What did each resolver say of this name at this time, and which of them disagreed with most?
-- :name, :at
with said as (
    select vantage, resolver, outcome, addresses, count(*) over (partition by addresses, outcome) as of_one_mind, count(*) over () as asked
    from v_answer
    where name = :'name' and family = 4
      and tstzrange(since, last_seen + interval '2 minutes') @> :'at'::timestamptz
)
select vantage, resolver, outcome, addresses, of_one_mind || ' of ' || asked as same_answer
from said
order by of_one_mind, vantage, resolver;
