-- Several coordinators: which of them live, which one holds each agent's stream, and what they hand each other.

create table coordinator (
    instance    uuid primary key,
    name        text not null,
    started_at  timestamptz not null default clock_timestamp(),
    alive_until timestamptz not null
);
comment on table  coordinator is 'Running coordinators. One that was killed is gone from here a minute after its last word.';
comment on column coordinator.instance is 'Random identity of the process.';
comment on column coordinator.name is 'For people: machine and port for agents.';
comment on column coordinator.started_at is 'First word of this process, database clock.';
comment on column coordinator.alive_until is 'Counts as running until then, database clock; said anew every two seconds.';

create table session (
    vantage_id smallint not null references vantage on delete cascade,
    boot_id    uuid not null,
    instance   uuid references coordinator on delete set null,
    remote     text not null,
    since      timestamptz not null,
    ended_at   timestamptz,
    primary key (vantage_id, boot_id)
);
create index session_instance on session (instance);
comment on table  session is 'The newest stream of each start of each agent, and which coordinator holds it. Ended ones are kept for a day: a start that comes back after a later one is another machine with the same identity.';
comment on column session.vantage_id is 'Whose stream.';
comment on column session.boot_id is 'Random identity of that start of the agent.';
comment on column session.instance is 'Coordinator that holds it; null: none does.';
comment on column session.remote is 'Address and port from which it came.';
comment on column session.since is 'When it began, database clock.';
comment on column session.ended_at is 'When it ended, database clock; null while it is held, and when its coordinator vanished.';

create table session_clone (
    vantage_id    smallint primary key references vantage on delete cascade,
    boot_id       uuid not null,
    remote        text not null,
    other_boot_id uuid not null,
    other_remote  text not null,
    first_at      timestamptz not null default clock_timestamp(),
    last_at       timestamptz not null default clock_timestamp(),
    count         bigint not null default 1
);
comment on table  session_clone is 'Identities used by two machines at once: a start of an agent was connected, a later one replaced it, and the first came back.';
comment on column session_clone.vantage_id is 'Whose identity.';
comment on column session_clone.boot_id is 'The start that came back last.';
comment on column session_clone.remote is 'From where.';
comment on column session_clone.other_boot_id is 'The start that had replaced it.';
comment on column session_clone.other_remote is 'From where.';
comment on column session_clone.first_at is 'First time, database clock.';
comment on column session_clone.last_at is 'Last time, database clock.';
comment on column session_clone.count is 'How often one of the two came back.';

-- Lost with a crash of the server, and harmless then: evidence is asked for again, and a change without a report counts
-- as perhaps made. Its numbers come from a sequence that is logged: Postgres 15 makes the one of an unlogged table unlogged
-- too, and such a one cannot be read after a standby was promoted ("bad magic number in sequence").
create sequence relay_number;
create unlogged table relay (
    id            bigint not null default nextval('relay_number') primary key,
    to_instance   uuid not null,
    from_instance uuid not null,
    kind          text not null check (kind in ('task', 'change', 'report')),
    vantage       text not null,
    task_id       bigint not null,
    epoch         bigint not null,
    payload       jsonb not null,
    made_at       timestamptz not null default clock_timestamp(),
    deadline_at   timestamptz not null
);
create index relay_to on relay (to_instance);
comment on table  relay is 'Tasks and changes on their way to the coordinator that holds the agent''s stream, and reports on their way back. Taken out by whom they are for.';
comment on column relay.id is 'Key, in order of sending.';
comment on column relay.to_instance is 'Coordinator that it is for.';
comment on column relay.from_instance is 'Coordinator that sent it.';
comment on column relay.kind is 'task (evidence wanted), change (of a local resolver) or report (of a change).';
comment on column relay.vantage is 'Whose agent.';
comment on column relay.task_id is 'Number of the task, as its sender gave it.';
comment on column relay.epoch is 'Epoch of the lease under which it was sent; of an older one than the lease''s it is refused.';
comment on column relay.payload is 'What is wanted or reported.';
comment on column relay.made_at is 'When it was sent, database clock.';
comment on column relay.deadline_at is 'Worthless after this, database clock.';

create view v_session as
select v.name as vantage, c.name as coordinator, s.remote, s.boot_id, s.since, s.ended_at,
       coalesce(c.alive_until > clock_timestamp(), false) as live
from session s join vantage v on v.id = s.vantage_id left join coordinator c on c.instance = s.instance;
comment on view v_session is 'Streams of agents: the newest of each start in the last day, and which coordinator holds it.';
comment on column v_session.vantage is 'Whose stream.';
comment on column v_session.coordinator is 'Coordinator that holds it: machine and port; null: none does.';
comment on column v_session.remote is 'Address and port from which it came.';
comment on column v_session.boot_id is 'Random identity of that start of the agent.';
comment on column v_session.since is 'When it began.';
comment on column v_session.ended_at is 'When it ended; null while it is held, and when its coordinator vanished.';
comment on column v_session.live is 'Whether a running coordinator holds it.';

create view v_clone as
select v.name as vantage, c.remote, c.other_remote, c.first_at, c.last_at, c.count, c.boot_id, c.other_boot_id
from session_clone c join vantage v on v.id = c.vantage_id;
comment on view v_clone is 'Identities that two machines use at once, with both source addresses.';
comment on column v_clone.vantage is 'Whose identity.';
comment on column v_clone.remote is 'Address and port of the one that came back last.';
comment on column v_clone.other_remote is 'Address and port of the one that had replaced it.';
comment on column v_clone.first_at is 'First time.';
comment on column v_clone.last_at is 'Last time.';
comment on column v_clone.count is 'How often one of the two came back.';
comment on column v_clone.boot_id is 'Start of the agent that came back last.';
comment on column v_clone.other_boot_id is 'Start of the agent that had replaced it.';

do $$
begin
    if exists (select from pg_roles where rolname = 'parallax_ro') then
        grant select on v_session, v_clone to parallax_ro;
    end if;
end
$$;
