-- Which vantages could reach this address at this time?
-- :address, :at
select vantage, target, reached, verdict, since, until
from v_reach
where during @> :'at'::timestamptz and address = :'address'::inet
order by reached, vantage, target;
