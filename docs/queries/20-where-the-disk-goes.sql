-- Where does the database's disk go, and is upkeep in time?
select coalesce(day::text, name) as what, kind, rows_estimated, pg_size_pretty(bytes) as size,
       (select string_agg(u.what || ' ' || u.behind_s || ' s behind', ', ' order by u.what) from v_upkeep u) as upkeep
from v_storage
order by bytes desc
limit 12;
