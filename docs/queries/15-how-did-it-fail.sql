-- How did probes fail, by place and outcome?
-- :from, :to
select vantage, kind, subject, resolver, outcome, sum(probes) as failed,
       round(100 * sum(probes) / sum(sum(probes)) over (partition by vantage, kind, subject, resolver), 1) as percent
from v_hourly
where hour >= date_trunc('hour', :'from'::timestamptz) and hour < :'to'::timestamptz
group by vantage, kind, subject, resolver, outcome
having outcome not in ('answered', 'tls_ok', 'tcp_ok', 'http_ok')
order by failed desc, vantage, subject
limit 30;
