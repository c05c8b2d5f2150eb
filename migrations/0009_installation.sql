-- Which installation a database belongs to, and how often it went back: after a restore from a backup everything that
-- only rises (epochs, cursors, versions) has fallen, while agents and coordinators remember what was higher.

create table installation (
    single     boolean primary key default true check (single),
    id         uuid not null default gen_random_uuid(),
    generation integer not null default 1 check (generation > 0),
    made_at    timestamptz not null default now(),
    alive_at   timestamptz not null default now()
);
insert into installation default values;
comment on table  installation is 'One row: what this database is.';
comment on column installation.single is 'Always true: there is one row.';
comment on column installation.id is 'Random identity of this database. It goes with every dump and copy of it.';
comment on column installation.generation is 'Rises by at least one each time the database is found to have gone back. Agents are told generation * 2^32 + epoch, so that they follow it and no coordinator that still knows a lost epoch.';
comment on column installation.made_at is 'When the database was made, its own clock.';
comment on column installation.alive_at is 'When a coordinator last noted how far the database is, database clock, to within seconds. Read from a backup: the time of the backup.';

create table installation_event (
    id           bigint generated always as identity primary key,
    at           timestamptz not null default clock_timestamp(),
    kind         text not null check (kind in ('went_back', 'replaced')),
    generation   integer not null,
    told_by      text not null,
    gap_from     timestamptz,
    gap_to       timestamptz,
    observations bigint check (observations >= 0),
    detail       text not null
);
comment on table  installation_event is 'Each time the database was found to be older than what was seen of it. What agents had been acknowledged in the gap is gone; no verdict is made of it.';
comment on column installation_event.id is 'Key.';
comment on column installation_event.at is 'When it was found, database clock.';
comment on column installation_event.kind is 'went_back: the same database with less in it (a backup, a replica that had not everything); replaced: another database than the one that was known (made anew, emptied).';
comment on column installation_event.generation is 'Generation in force since then.';
comment on column installation_event.told_by is 'Who remembered more: coordinator, or the name of a vantage whose agent had seen a higher epoch.';
comment on column installation_event.gap_from is 'Begin of what is missing: the last sign of life in the database as it was found; null: it had none.';
comment on column installation_event.gap_to is 'End of what is missing: when the database was last seen with it; null: not known.';
comment on column installation_event.observations is 'How many numbers of observations lie in the gap; null: not known.';
comment on column installation_event.detail is 'What was expected and what was found, in words.';

alter table write_freeze add column event_id bigint references installation_event;
alter table write_freeze add column thaw_reason text;
comment on column write_freeze.event_id is 'The event that froze, if it was no person: such a freeze ends only with a reason.';
comment on column write_freeze.thaw_reason is 'What the person who thawed gave as reason; null: none.';

create view v_installation_event as
select id, at, kind, generation, told_by, gap_from, gap_to, observations, detail,
       (select min(f.thawed_at) from write_freeze f where f.event_id = e.id) as accepted_at,
       (select min(f.thawed_by) from write_freeze f where f.event_id = e.id) as accepted_by,
       (select min(f.thaw_reason) from write_freeze f where f.event_id = e.id) as accepted_reason
from installation_event e;
comment on view   v_installation_event is 'Each time the database went back or was replaced, and who accepted it.';
comment on column v_installation_event.id is 'Number.';
comment on column v_installation_event.at is 'When it was found.';
comment on column v_installation_event.kind is 'went_back (a backup, a replica that had not everything) or replaced (another database than the one known).';
comment on column v_installation_event.generation is 'Generation in force since then.';
comment on column v_installation_event.told_by is 'Who remembered more: coordinator, or a vantage.';
comment on column v_installation_event.gap_from is 'Begin of what is missing.';
comment on column v_installation_event.gap_to is 'End of what is missing.';
comment on column v_installation_event.observations is 'How many numbers of observations lie in the gap; null: not known.';
comment on column v_installation_event.detail is 'What was expected and what was found.';
comment on column v_installation_event.accepted_at is 'When a person allowed writes again; null: frozen.';
comment on column v_installation_event.accepted_by is 'Who.';
comment on column v_installation_event.accepted_reason is 'Why.';

do $$
begin
    if exists (select from pg_roles where rolname = 'parallax_ro') then
        grant select on v_installation_event to parallax_ro;
    end if;
end
$$;
