-- How available was each name and node to whom, and how much of the time was observed at all?
-- :from, :to
select subject_kind, subject, vantage, round(sum(online_s)) as online_s, round(sum(offline_s)) as offline_s,
       round(100 * sum(online_s) / nullif(sum(online_s) + sum(offline_s), 0), 3) as uptime_percent,
       round(100 * (sum(online_s) + sum(offline_s)) / nullif(sum(length_s), 0), 1) as observed_percent
from v_uptime
where hour >= date_trunc('hour', :'from'::timestamptz) and hour < :'to'::timestamptz
  and (subject_kind = 'node' or subject_kind = 'answer' and resolver = 'live')
group by subject_kind, subject, vantage
order by uptime_percent, subject, vantage;
