-- How long did connections take, hour by hour and place by place?
-- :from, :to
select hour, vantage, subject, sum(probes) as probes, max(p50_ms) as p50_ms, max(p95_ms) as p95_ms, max(max_ms) as max_ms
from v_hourly
where kind = 'connection' and outcome in ('tls_ok', 'tcp_ok', 'http_ok')
  and hour >= date_trunc('hour', :'from'::timestamptz) and hour < :'to'::timestamptz
group by hour, vantage, subject
order by hour, vantage, subject;
