-- History: how long each verdict held, the evidence of incidents kept with them, hourly figures that outlive the log,
-- configurations by number, and the views of all that for people.

-- How long a verdict held -----------------------------------------------------------------------------------------------

alter table verdict add column until timestamptz, add column presence text not null default 'unknown'
    check (presence in ('online', 'offline', 'unknown'));
update verdict v set until = greatest(n.next, v.at)
from (select id, lead(at) over (partition by subject_kind, subject, vantage, resolver order by id) as next from verdict) as n
where n.id = v.id and n.next is not null;
update verdict set presence = case
    when verdict in ('insufficient_evidence', 'addr_unmeasured', 'addr_family_unavailable', 'addr_refused_by_policy',
                     'answer_family_unusable', 'vantage_silent', 'vantage_unmeasured') then 'unknown'
    when verdict in ('answer_ok', 'answer_steered_by_vantage', 'answer_partly_dead', 'addr_ok', 'addr_ok_unproven',
                     'node_ok', 'node_unroutable_from_some', 'vantage_ok', 'vantage_degraded') then 'online'
    else 'offline' end;
alter table verdict alter column presence drop default, add check (until >= at);
-- At most one verdict of a subject holds: a second would make every answer about "now" double.
create unique index verdict_holds on verdict (subject_kind, subject, coalesce(vantage, ''), coalesce(resolver, ''))
    where until is null;
-- "Who saw what between these two times" is answered from this index alone: a state at the start of the span and every
-- change within it, whatever the number of observations. Verdicts change rarely, so that it costs next to nothing.
create index verdict_during on verdict using gist (tstzrange(at, until))
    include (at, until, subject_kind, subject, vantage, resolver, verdict, presence);
comment on column verdict.until is 'When the next verdict of the same subject replaced it; null: it holds.';
comment on column verdict.presence is 'What it means for who uses the subject: online, offline or unknown. Partial, and unroutable from some, are online.';

create table watch (
    id       bigint generated always as identity primary key,
    epoch    bigint not null,
    began_at timestamptz not null,
    until    timestamptz not null,
    check (until >= began_at)
);
create index watch_during on watch using gist (tstzrange(began_at, until));
comment on table  watch is 'Spans in which a coordinator judged. What lies between them is unknown time, whatever the verdicts before and after say.';
comment on column watch.id is 'Key.';
comment on column watch.epoch is 'Lease epoch of the coordinator that judged.';
comment on column watch.began_at is 'First judgement of the span.';
comment on column watch.until is 'Last one known, moved on every few seconds.';

-- What incidents and proofs rest on ------------------------------------------------------------------------------------

create table cited_observation (like observation including comments);
alter table cited_observation add primary key (id);
comment on table cited_observation is 'Copies of the rows of the log that incidents and proofs cite, made when they are cited. Kept as long as those: days of the log go, these stay.';
insert into cited_observation (id, received_at, observed_at, vantage_id, boot_id, lane, sequence, late, purpose, task_id,
                               duration_us, kind, subject, resolver, family, address, port, outcome, stage, addresses,
                               ttl_s, attempts, attempts_connected, detail)
select id, received_at, observed_at, vantage_id, boot_id, lane, sequence, late, purpose, task_id,
       duration_us, kind, subject, resolver, family, address, port, outcome, stage, addresses,
       ttl_s, attempts, attempts_connected, detail
from observation
where id in (select observation_id from incident_evidence
             union select resolution_id from plan_proof
             union select connection_id from plan_proof where connection_id is not null);

-- Hourly figures ---------------------------------------------------------------------------------------------------------

create table hourly (
    hour       timestamptz not null,
    vantage_id smallint not null references vantage,
    kind       text not null,
    subject    text not null,
    resolver   text not null,
    family     smallint not null check (family in (0, 4, 6)),
    outcome    text not null,
    probes     bigint not null,
    late       bigint not null,
    duration_us_total numeric not null,
    duration_us_max   bigint not null,
    durations  jsonb not null,
    primary key (hour, vantage_id, kind, subject, resolver, family, outcome)
);
comment on table  hourly is 'What was measured, hour by hour, for the years after its rows have left the log. Added to as the log grows, each row once; a late row counts in the hour in which it was measured.';
comment on column hourly.hour is 'Start of the hour (UTC) in which the probes ended.';
comment on column hourly.vantage_id is 'Where it was measured.';
comment on column hourly.kind is 'resolution, connection, endpoint_check or control_check.';
comment on column hourly.subject is 'As in the log: canary or host name, "node:NAME", resolver or control.';
comment on column hourly.resolver is 'Resolver that was asked; empty: not a resolution.';
comment on column hourly.family is '4 or 6: family asked for, or of the address that was contacted; 0: none.';
comment on column hourly.outcome is 'Outcome word.';
comment on column hourly.probes is 'How many ended so.';
comment on column hourly.late is 'How many of them came late (history only).';
comment on column hourly.duration_us_total is 'Sum of their durations, microseconds.';
comment on column hourly.duration_us_max is 'Longest of them, microseconds.';
comment on column hourly.durations is 'How many took how long: bucket b holds 2^(b/2) to 2^((b+1)/2) microseconds. An object of bucket to count.';

create table hourly_verdict (
    hour         timestamptz not null,
    subject_kind text not null,
    subject      text not null,
    vantage      text not null,
    resolver     text not null,
    verdict      text not null,
    presence     text not null check (presence in ('online', 'offline', 'unknown')),
    seconds      real not null,
    primary key (hour, subject_kind, subject, vantage, resolver, verdict, presence)
);
comment on table  hourly_verdict is 'How long each verdict held in each hour, counted only while a coordinator judged. Written once the hour is over; making an hour again gives the same rows.';
comment on column hourly_verdict.hour is 'Start of the hour (UTC).';
comment on column hourly_verdict.subject_kind is 'vantage, answer, address, endpoint or node.';
comment on column hourly_verdict.subject is 'As in verdict.subject.';
comment on column hourly_verdict.vantage is 'Where it held; empty: across vantages.';
comment on column hourly_verdict.resolver is 'Resolver that gave the answer; empty: not about an answer.';
comment on column hourly_verdict.verdict is 'The verdict''s word.';
comment on column hourly_verdict.presence is 'online, offline or unknown.';
comment on column hourly_verdict.seconds is 'For how long, seconds.';

create table answer_epoch (
    vantage_id  smallint not null references vantage,
    subject     text not null,
    resolver    text not null,
    family      smallint not null check (family in (4, 6)),
    began_at    timestamptz not null,
    last_at     timestamptz not null,
    outcome     text not null,
    addresses   inet[] not null,
    resolutions bigint not null,
    ttl_s_min   integer,
    ttl_s_max   integer,
    check (last_at >= began_at),
    primary key (vantage_id, subject, resolver, family, began_at)
);
create index answer_epoch_last on answer_epoch (last_at);
comment on table  answer_epoch is 'For how long one resolver gave one vantage the same set of addresses (or the same error) for a name. A new row where the set changes; order does not count. Made from the log, kept as long as the hourly figures.';
comment on column answer_epoch.vantage_id is 'Where it was asked.';
comment on column answer_epoch.subject is 'Name.';
comment on column answer_epoch.resolver is 'Resolver that was asked.';
comment on column answer_epoch.family is 'Address family asked for: 4 or 6.';
comment on column answer_epoch.began_at is 'When the first such answer came.';
comment on column answer_epoch.last_at is 'When the last such answer came.';
comment on column answer_epoch.outcome is 'Outcome word of the resolutions.';
comment on column answer_epoch.addresses is 'The set, sorted; empty: no usable address.';
comment on column answer_epoch.resolutions is 'How many resolutions gave it.';
comment on column answer_epoch.ttl_s_min is 'Smallest TTL seen, seconds; null: none.';
comment on column answer_epoch.ttl_s_max is 'Largest TTL seen, seconds; null: none.';

create table history_position (
    one            boolean primary key default true check (one),
    observation_id bigint not null,
    received_at    timestamptz not null,
    hour           timestamptz not null,
    moved_at       timestamptz not null default now()
);
comment on table  history_position is 'How far the log and the verdicts are in the hourly figures. Moves in the transaction that writes them. One row.';
comment on column history_position.one is 'Keeps it to one row.';
comment on column history_position.observation_id is 'Every row of the log up to this one is counted in hourly and answer_epoch.';
comment on column history_position.received_at is 'When that row was received: spares the reader older days.';
comment on column history_position.hour is 'Every hour before this one is in hourly_verdict.';
comment on column history_position.moved_at is 'When it last moved, database clock.';

create table upkeep (
    what      text primary key check (what in ('days', 'hourly', 'figures')),
    ran_at    timestamptz not null,
    done_at   timestamptz,
    behind_s  bigint not null,
    error     text
);
comment on table  upkeep is 'How the database''s upkeep stands, one row a job.';
comment on column upkeep.what is 'days (days of the log, made ahead and dropped), hourly (old hourly figures, removed) or figures (the log counted into hourly figures).';
comment on column upkeep.ran_at is 'Last attempt.';
comment on column upkeep.done_at is 'Last attempt that ended well; null: none did.';
comment on column upkeep.behind_s is 'days, hourly: how far the oldest that is still there is past its time, seconds. figures: how far they are behind the log, seconds.';
comment on column upkeep.error is 'Why the last attempt failed; null: it did not.';

-- Configurations ---------------------------------------------------------------------------------------------------------

create table config_version (
    number     integer generated always as identity primary key,
    sha256     bytea not null unique,
    content    jsonb not null,
    named      jsonb not null,
    topology   jsonb not null,
    created_at timestamptz not null default now()
);
comment on table  config_version is 'Every configuration that was ever in force, without secrets. Equal content is one version, whichever coordinator read it.';
comment on column config_version.number is 'Number people use.';
comment on column config_version.sha256 is 'SHA-256 of the content as canonical JSON (sorted keys, no blanks). Where a coordinator listens is its own affair and not part of it.';
comment on column config_version.content is 'What parallax config show prints, with every default, without listen.';
comment on column config_version.named is 'What it names, as rows of configured: an array of objects of kind, name, position, detail.';
comment on column config_version.topology is 'What judging reads of it, for a replay: durations in seconds and nanoseconds.';
comment on column config_version.created_at is 'When it was first in force, database clock.';

create table config_in_force (
    id          bigint generated always as identity primary key,
    at          timestamptz not null default now(),
    number      integer not null references config_version,
    coordinator uuid not null,
    host        text not null,
    how         text not null check (how in ('start', 'sighup', 'request')),
    by          text not null
);
create index config_in_force_at on config_in_force (at);
comment on table  config_in_force is 'When each version came into force, at which coordinator, and how.';
comment on column config_in_force.id is 'Key, in order.';
comment on column config_in_force.at is 'When, database clock.';
comment on column config_in_force.number is 'Version: config_version.number.';
comment on column config_in_force.coordinator is 'Random identity of the coordinator process.';
comment on column config_in_force.host is 'Host on which it runs.';
comment on column config_in_force.how is 'start, sighup or request.';
comment on column config_in_force.by is 'User of the system who ran or asked the coordinator, as far as it knows.';

create table config_reload (
    coordinator uuid primary key,
    host        text not null,
    at          timestamptz not null default now(),
    how         text not null check (how in ('start', 'sighup', 'request')),
    number      integer references config_version,
    error       text
);
comment on table  config_reload is 'The last attempt of each coordinator to take a configuration. With an error the version before is still in force.';
comment on column config_reload.coordinator is 'Random identity of the coordinator process.';
comment on column config_reload.host is 'Host on which it runs.';
comment on column config_reload.at is 'When, database clock.';
comment on column config_reload.how is 'start, sighup or request.';
comment on column config_reload.number is 'Version in force after the attempt.';
comment on column config_reload.error is 'Why the new one was refused, line by line; null: it was taken.';
comment on table configured is 'What the configuration in force names. Replaced as a whole by a coordinator when it starts or reloads; what earlier versions named is in config_version.';

-- Views ------------------------------------------------------------------------------------------------------------------

create view v_interface as select 1 as version;
comment on view v_interface is 'Version of the views as an interface. Columns and views are added under the same number; it rises when one is renamed, removed or changes its meaning, and the release notes say what.';
comment on column v_interface.version is 'Version.';

create view v_verdict as
select id, at, until, tstzrange(at, until) as during, coalesce(until, now()) - at as lasted, vantage, subject_kind, subject,
       resolver, verdict, presence, lag(verdict) over (partition by subject_kind, subject, vantage, resolver order by id) as before,
       reason, evidence
from verdict;
comment on view v_verdict is 'Every change of a verdict, from what to what, with how long it held. Filter by subject_kind and subject: only those are then read. Who saw what at a time: v_state.';
comment on column v_verdict.id is 'Key, in order of decision.';
comment on column v_verdict.at is 'Since when it held.';
comment on column v_verdict.until is 'When the next verdict of the same subject replaced it; null: it holds.';
comment on column v_verdict.during is 'The same as a range.';
comment on column v_verdict.lasted is 'For how long it held, or has held.';
comment on column v_verdict.vantage is 'Where it holds; null: across vantages.';
comment on column v_verdict.subject_kind is 'vantage, answer (a name as one resolver answers it), address (at a vantage), endpoint (at a vantage) or node (across vantages).';
comment on column v_verdict.subject is 'Vantage, name or node; for an address its target (name or "node:NAME") and the address, a blank between.';
comment on column v_verdict.resolver is 'Resolver that gave the answer (answer only).';
comment on column v_verdict.verdict is 'The verdict''s word.';
comment on column v_verdict.presence is 'online, offline or unknown.';
comment on column v_verdict.before is 'The verdict that it replaced; null: the first of its subject.';
comment on column v_verdict.reason is 'Why, as data.';
comment on column v_verdict.evidence is 'Observations that decided, by id: v_observation.id.';

create view v_state as
select at as since, until, tstzrange(at, until) as during, vantage, subject_kind, subject, resolver, verdict, presence,
       id, reason, evidence
from verdict;
comment on view v_state is 'Who saw what, when. Ask with during: during @> a time, or during && tstzrange(from, to); both read one index, however many observations there are.';
comment on column v_state.since is 'Since when it held.';
comment on column v_state.until is 'Until when; null: it holds.';
comment on column v_state.during is 'The same as a range.';
comment on column v_state.vantage is 'Where it holds; null: across vantages.';
comment on column v_state.subject_kind is 'vantage, answer, address, endpoint or node.';
comment on column v_state.subject is 'As in v_verdict.';
comment on column v_state.resolver is 'Resolver that gave the answer (answer only).';
comment on column v_state.verdict is 'The verdict''s word.';
comment on column v_state.presence is 'online, offline or unknown.';
comment on column v_state.id is 'Verdict: v_verdict.id. With this, reason or evidence the rows themselves are read besides the index.';
comment on column v_state.reason is 'Why, as data.';
comment on column v_state.evidence is 'Observations that decided: v_observation.id.';

create view v_reach as
select v.id, v.at as since, v.until, tstzrange(v.at, v.until) as during, v.vantage,
       split_part(v.subject, ' ', 1) as target, split_part(v.subject, ' ', 2)::inet as address,
       v.presence = 'online' as reached, v.verdict, v.reason, v.evidence
from verdict v where v.subject_kind = 'address';
comment on view v_reach is 'Who could reach which address, when. One row a span and vantage. Ask with during.';
comment on column v_reach.id is 'Verdict: v_verdict.id.';
comment on column v_reach.since is 'Since when.';
comment on column v_reach.until is 'Until when; null: it holds.';
comment on column v_reach.during is 'The same as a range.';
comment on column v_reach.vantage is 'From where.';
comment on column v_reach.target is 'For whom the address was tried: a name, or "node:NAME".';
comment on column v_reach.address is 'The address.';
comment on column v_reach.reached is 'Whether it could be reached. False with an unknown verdict (addr_unmeasured and the like): nobody knows.';
comment on column v_reach.verdict is 'The verdict''s word: addr_ok, addr_silent and so on.';
comment on column v_reach.reason is 'Why, as data.';
comment on column v_reach.evidence is 'Observations that decided: v_observation.id.';

create view v_answer as
select v.name as vantage, a.subject as name, a.resolver, a.family, a.began_at as since, a.last_at as last_seen,
       tstzrange(a.began_at, a.last_at, '[]') as during, a.outcome, a.addresses, a.resolutions, a.ttl_s_min, a.ttl_s_max
from answer_epoch a join vantage v on v.id = a.vantage_id;
comment on view v_answer is 'What each resolver answered, when. One row for as long as the set of addresses stayed the same; the next row of the same vantage, name, resolver and family is the change. Up to a minute behind the log.';
comment on column v_answer.vantage is 'Where it was asked.';
comment on column v_answer.name is 'Name.';
comment on column v_answer.resolver is 'Resolver that was asked; that of role live is what clients there use.';
comment on column v_answer.family is 'Address family asked for: 4 or 6.';
comment on column v_answer.since is 'When the first such answer came.';
comment on column v_answer.last_seen is 'When the last such answer came.';
comment on column v_answer.during is 'From since to last_seen, as a range.';
comment on column v_answer.outcome is 'Outcome word of the resolutions.';
comment on column v_answer.addresses is 'The set, sorted; empty: no usable address.';
comment on column v_answer.resolutions is 'How many resolutions gave it.';
comment on column v_answer.ttl_s_min is 'Smallest TTL seen, seconds.';
comment on column v_answer.ttl_s_max is 'Largest TTL seen, seconds.';

create view v_evidence as
select e.incident_id, e.says, e.observation_id, o.observed_at as at, v.name as vantage, o.kind, o.purpose, o.subject,
       o.resolver, o.address, o.port, o.outcome, o.stage, o.addresses, o.ttl_s, o.attempts, o.attempts_connected,
       round(o.duration_us / 1000.0, 1) as duration_ms, o.detail, o.received_at
from incident_evidence e
left join cited_observation o on o.id = e.observation_id
left join vantage v on v.id = o.vantage_id;
comment on view v_evidence is 'Observations that incidents cite, with what each shows; kept as long as the incident. Ask with incident_id.';
comment on column v_evidence.incident_id is 'Incident: v_incident.id.';
comment on column v_evidence.says is 'What it shows: fails_here, seen_elsewhere, other_resolver, node_probe or control.';
comment on column v_evidence.observation_id is 'Row of the log: v_observation.id.';
comment on column v_evidence.at is 'When the probe ended.';
comment on column v_evidence.vantage is 'Where it was measured.';
comment on column v_evidence.kind is 'resolution, connection, endpoint_check, control_check, path, loss (observations that were dropped) or missed (rounds that did not run).';
comment on column v_evidence.purpose is 'Why it was measured.';
comment on column v_evidence.subject is 'Canary or host name, "node:NAME", resolver or control.';
comment on column v_evidence.resolver is 'Resolver that was asked (resolution only).';
comment on column v_evidence.address is 'Address that was contacted.';
comment on column v_evidence.port is 'TCP port that was contacted (connection only).';
comment on column v_evidence.outcome is 'Exactly one outcome word.';
comment on column v_evidence.stage is 'Last stage tried (endpoint_check only).';
comment on column v_evidence.addresses is 'Addresses in answer order (resolution only).';
comment on column v_evidence.ttl_s is 'Smallest TTL of the answer, seconds (resolution only).';
comment on column v_evidence.attempts is 'Own connection attempts (connection only).';
comment on column v_evidence.attempts_connected is 'How many of them completed TCP (connection only).';
comment on column v_evidence.duration_ms is 'Whole duration of the probe, milliseconds.';
comment on column v_evidence.detail is 'Particulars of the kind.';
comment on column v_evidence.received_at is 'When it was stored, database clock: with it the row is found in v_observation while its day is there.';

create view v_change as
select e.at, case e.what when 'conflict' then 'found_changed' else 'changed' end as what, p.incident_id, p.id as plan_id,
       p.purpose, coalesce(p.change ->> 'name', p.subject) as name, p.change ->> 'kind' as change_kind, p.driver, p.vantage,
       case p.change ->> 'kind' when 'pin' then null else p.change -> 'expects' end as before,
       case p.change ->> 'kind' when 'pin' then p.change -> 'addresses' else p.change -> 'sets' end as after,
       case when e.what = 'conflict' then null else coalesce(p.approved_by, 'nobody') end as by,
       p.mode, p.status, p.verified_at, p.reason, e.detail as driver_said,
       array(select observation_id from incident_evidence i where i.incident_id = p.incident_id order by 1) as evidence
from plan_event e join plan p on p.id = e.plan_id
where e.what in ('applied', 'already', 'conflict');
comment on view v_change is 'Who changed which record, when, from what to what, and on what evidence. Also what was found changed by somebody else.';
comment on column v_change.at is 'When the driver confirmed it.';
comment on column v_change.what is 'changed (by Parallax), or found_changed (somebody else did; nothing was written).';
comment on column v_change.incident_id is 'Incident it was made for: v_incident.id.';
comment on column v_change.plan_id is 'Plan: v_plan.id.';
comment on column v_change.purpose is 'remedy, return or rollback.';
comment on column v_change.name is 'Name whose answer it changes.';
comment on column v_change.change_kind is 'pin, unpin or repoint.';
comment on column v_change.driver is 'Driver that applied it.';
comment on column v_change.vantage is 'Vantage whose agent applied it; null: the coordinator.';
comment on column v_change.before is 'Addresses before, as an array; null: the native answer.';
comment on column v_change.after is 'Addresses after, as an array; null: the native answer.';
comment on column v_change.by is 'Person who approved it, or "policy"; null: somebody else than Parallax.';
comment on column v_change.mode is 'What automation might do: observe, propose or act.';
comment on column v_change.status is 'What became of the plan.';
comment on column v_change.verified_at is 'When it was proven from the clients'' side; null: it was not.';
comment on column v_change.reason is 'Why this remedy and this target, as data.';
comment on column v_change.driver_said is 'What the driver reported, as data.';
comment on column v_change.evidence is 'Observations the incident cites: v_evidence.observation_id.';

create view v_uptime as
with closed as (
    select coalesce(max(hour), '-infinity') as until from history_position
), figures as (
    select hour, subject_kind, subject, vantage, resolver,
           sum(seconds) filter (where presence = 'online') as online_s,
           sum(seconds) filter (where presence = 'offline') as offline_s,
           sum(seconds) filter (where presence = 'unknown') as unknown_s,
           3600.0 as length_s
    from hourly_verdict
    group by hour, subject_kind, subject, vantage, resolver
    union all
    -- The hours that are not over, from the verdicts themselves.
    select h.hour, s.subject_kind, s.subject, coalesce(s.vantage, ''), coalesce(s.resolver, ''),
           sum(l.seconds) filter (where s.presence = 'online'),
           sum(l.seconds) filter (where s.presence = 'offline'),
           sum(l.seconds) filter (where s.presence = 'unknown'),
           extract(epoch from least(now(), h.hour + interval '1 hour') - h.hour)
    from closed
    cross join lateral generate_series(greatest(closed.until, date_trunc('hour', now()) - interval '3 hours'),
                                       now(), interval '1 hour') as h(hour)
    join verdict s on tstzrange(s.at, s.until) && tstzrange(h.hour, h.hour + interval '1 hour')
    cross join lateral (
        select extract(epoch from sum(upper(x) - lower(x))) as seconds
        from watch w,
             lateral (select tstzrange(s.at, s.until) * tstzrange(w.began_at, w.until)
                             * tstzrange(h.hour, h.hour + interval '1 hour') as x) as common
        where tstzrange(w.began_at, w.until) && tstzrange(h.hour, h.hour + interval '1 hour') and not isempty(x)
    ) as l
    group by h.hour, s.subject_kind, s.subject, s.vantage, s.resolver
)
select hour, subject_kind, subject, nullif(vantage, '') as vantage, nullif(resolver, '') as resolver,
       round(coalesce(online_s, 0)::numeric, 1) as online_s,
       round(coalesce(offline_s, 0)::numeric, 1) as offline_s,
       round(length_s::numeric, 1) as length_s,
       round((100 * coalesce(online_s, 0) / nullif(coalesce(online_s, 0) + coalesce(offline_s, 0), 0))::numeric, 3) as uptime_percent,
       round((100 * (coalesce(online_s, 0) + coalesce(offline_s, 0)) / nullif(length_s, 0))::numeric, 3) as observed_percent
from figures;
comment on view v_uptime is 'How much of each hour a subject was online, always with how much of it was observed at all. Sum the seconds over hours; do not average percentages. Reaches back as far as the hourly figures are kept.';
comment on column v_uptime.hour is 'Start of the hour (UTC).';
comment on column v_uptime.subject_kind is 'vantage, answer, address, endpoint or node.';
comment on column v_uptime.subject is 'As in v_verdict.';
comment on column v_uptime.vantage is 'Where; null: across vantages.';
comment on column v_uptime.resolver is 'Resolver (answer only).';
comment on column v_uptime.online_s is 'Seconds in which it was usable.';
comment on column v_uptime.offline_s is 'Seconds in which it was known not to be.';
comment on column v_uptime.length_s is 'Length of the hour, or of what has passed of it, seconds. What is neither online nor offline of it is unknown.';
comment on column v_uptime.uptime_percent is 'online_s of online_s and offline_s, percent; null: nothing was observed.';
comment on column v_uptime.observed_percent is 'online_s and offline_s of length_s, percent.';

create view v_watch as
select began_at, until, epoch from watch;
comment on view v_watch is 'Spans in which a coordinator judged. What lies between them is unknown time.';
comment on column v_watch.began_at is 'First judgement of the span.';
comment on column v_watch.until is 'Last one.';
comment on column v_watch.epoch is 'Lease epoch of the coordinator that judged.';

create view v_hourly as
select h.hour, v.name as vantage, h.kind, h.subject, nullif(h.resolver, '') as resolver, nullif(h.family, 0) as family,
       h.outcome, h.probes, h.late,
       round(h.duration_us_total / h.probes / 1000, 1) as mean_ms,
       q.p50_ms, q.p95_ms,
       round(h.duration_us_max / 1000.0, 1) as max_ms
from hourly h
join vantage v on v.id = h.vantage_id
cross join lateral (
    select round((power(2, (min(b) filter (where upto >= 0.5 * h.probes) + 1) / 2.0) / 1000)::numeric, 1) as p50_ms,
           round((power(2, (min(b) filter (where upto >= 0.95 * h.probes) + 1) / 2.0) / 1000)::numeric, 1) as p95_ms
    from (select key::integer as b, sum(value::bigint) over (order by key::integer) as upto
          from jsonb_each_text(h.durations)) as bucket
) as q;
comment on view v_hourly is 'What was measured, hour by hour, by outcome; also after its rows have left the log. Ask with hour. Up to a minute behind the log.';
comment on column v_hourly.hour is 'Start of the hour (UTC) in which the probes ended.';
comment on column v_hourly.vantage is 'Where.';
comment on column v_hourly.kind is 'resolution, connection, endpoint_check or control_check.';
comment on column v_hourly.subject is 'Canary or host name, "node:NAME", resolver or control.';
comment on column v_hourly.resolver is 'Resolver that was asked (resolution only).';
comment on column v_hourly.family is 'Family asked for, or of the address that was contacted: 4 or 6.';
comment on column v_hourly.outcome is 'Outcome word.';
comment on column v_hourly.probes is 'How many probes ended so.';
comment on column v_hourly.late is 'How many of them came late.';
comment on column v_hourly.mean_ms is 'Their mean duration, milliseconds.';
comment on column v_hourly.p50_ms is 'Half of them took at most this, milliseconds; up to 42 % too high, as it is the upper end of a bucket.';
comment on column v_hourly.p95_ms is '95 % of them took at most this, milliseconds; up to 42 % too high.';
comment on column v_hourly.max_ms is 'The longest, milliseconds.';

create view v_config as
select f.at, lead(f.at) over (partition by f.coordinator order by f.id) as until, f.number, f.how, f.by, f.host,
       f.coordinator, encode(c.sha256, 'hex') as sha256, c.content, c.topology
from config_in_force f join config_version c on c.number = f.number;
comment on view v_config is 'Which configuration was in force when, at which coordinator. The newest row at or before a time is that of its day.';
comment on column v_config.at is 'Since when.';
comment on column v_config.until is 'Until when at this coordinator process; null: it is in force there, or the process has ended.';
comment on column v_config.number is 'Number of the version; equal content has one number.';
comment on column v_config.how is 'start, sighup or request.';
comment on column v_config.by is 'User of the system who ran or asked the coordinator, as far as it knows.';
comment on column v_config.host is 'Host of the coordinator.';
comment on column v_config.coordinator is 'Identity of the coordinator process.';
comment on column v_config.sha256 is 'SHA-256 of the content.';
comment on column v_config.content is 'The configuration with every default, without secrets.';
comment on column v_config.topology is 'What judging reads of it, as data: durations in seconds and nanoseconds.';

create view v_configured as
select c.number, n.kind, n.name, n.position, n.detail
from config_version c
cross join lateral jsonb_to_recordset(c.named) as n(kind text, name text, position integer, detail jsonb);
comment on view v_configured is 'What each version of the configuration names. Ask with number: v_config says which was in force when.';
comment on column v_configured.number is 'Version: v_config.number.';
comment on column v_configured.kind is 'vantage, resolver, canary, node, service or policy.';
comment on column v_configured.name is 'Its name.';
comment on column v_configured.position is 'Order in which pages show it, from 0 within its kind.';
comment on column v_configured.detail is 'What pages need of it: labels and failure domain; role; port; address; hostname, native and fallbacks; limits.';

create view v_config_reload as
select r.coordinator, r.host, r.at, r.how, r.number, r.error from config_reload r;
comment on view v_config_reload is 'The last attempt of each coordinator to take a configuration.';
comment on column v_config_reload.coordinator is 'Identity of the coordinator process.';
comment on column v_config_reload.host is 'Host on which it runs.';
comment on column v_config_reload.at is 'When.';
comment on column v_config_reload.how is 'start, sighup or request.';
comment on column v_config_reload.number is 'Version in force after the attempt.';
comment on column v_config_reload.error is 'Why the new one was refused; null: it was taken.';

create view v_audit as
select at, by, 'froze every write' as did, reason as what, null::bigint as incident_id, null::bigint as plan_id from write_freeze
union all
select thawed_at, thawed_by, 'allowed writes again', reason, null, null from write_freeze where thawed_at is not null
union all
select coalesce((select min(e.at) from plan_event e where e.plan_id = p.id), p.created_at), p.approved_by, 'approved a plan',
       coalesce(p.change ->> 'kind', '') || ' ' || coalesce(p.change ->> 'name', p.subject), p.incident_id, p.id
from plan p where p.approved_by is not null and p.approved_by <> 'policy'
union all
select at, who, replace(what, '_', ' '), concat_ws(': ', nullif(subject, ''), nullif(reason, '')), null, null from audit
union all
select at, by, 'put a configuration in force (' || how || ')', 'version ' || number || ' at ' || host, null, null from config_in_force;
comment on view v_audit is 'What people did, as far as it is stored: freezes and thaws, approvals, tokens, vantages renamed, replaced or revoked, configurations put in force. Not in it: what was only read, and what was done to the machine or the database around Parallax.';
comment on column v_audit.at is 'When; of an approval: its first step, else when the plan was made.';
comment on column v_audit.by is 'Who, as they named themselves or as the system names them; null: not stored.';
comment on column v_audit.did is 'What they did.';
comment on column v_audit.what is 'To what, or why.';
comment on column v_audit.incident_id is 'Incident concerned.';
comment on column v_audit.plan_id is 'Plan concerned.';

create view v_storage as
select c.relname::text as name,
       case when i.inhparent is not null then 'day of the log' else 'table' end as kind,
       to_date(substring(c.relname from '^observation_(\d{8})$'), 'YYYYMMDD') as day,
       greatest(c.reltuples, 0)::bigint as rows_estimated,
       pg_total_relation_size(c.oid) as bytes
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
left join pg_inherits i on i.inhrelid = c.oid and i.inhparent = 'observation'::regclass
where c.relkind = 'r' and n.nspname = current_schema();
comment on view v_storage is 'Space on the database''s disk, table by table, days of the log apart.';
comment on column v_storage.name is 'Table.';
comment on column v_storage.kind is 'day of the log, or table.';
comment on column v_storage.day is 'The day (UTC); null: not a day of the log.';
comment on column v_storage.rows_estimated is 'Rows, as the database last estimated them.';
comment on column v_storage.bytes is 'Space with indexes, bytes.';

create view v_upkeep as
select what, ran_at, done_at, behind_s, error from upkeep;
comment on view v_upkeep is 'How the database''s upkeep stands.';
comment on column v_upkeep.what is 'days (days of the log, made ahead and dropped), hourly (old hourly figures, removed) or figures (the log counted into hourly figures).';
comment on column v_upkeep.ran_at is 'Last attempt.';
comment on column v_upkeep.done_at is 'Last attempt that ended well.';
comment on column v_upkeep.behind_s is 'How far it is behind, seconds.';
comment on column v_upkeep.error is 'Why the last attempt failed; null: it did not.';

-- The role for people and dashboards. It reads the views and nothing else: no table, and so no hash of a token and nothing
-- that a later version keeps. Only where the migrating role may make roles: everything works without it, and the two
-- statements are in docs/post-mortem.md for whoever may.
do $$
declare
    view text;
begin
    -- Postgres 14 lets everybody make tables in "public".
    begin
        revoke create on schema public from public;
    exception
        when insufficient_privilege then null; -- not ours to change
    end;
    if not exists (select from pg_roles where rolname = 'parallax_ro') then
        begin
            create role parallax_ro nologin;
            alter role parallax_ro set default_transaction_read_only = on;
            alter role parallax_ro set statement_timeout = '60s';
        exception
            when insufficient_privilege then
                raise notice 'role parallax_ro was not made: the migrating role may not make roles. docs/post-mortem.md has the two statements for whoever may.';
            when duplicate_object or unique_violation then
                null; -- another database of this server was migrated in the same moment
        end;
    end if;
    if exists (select from pg_roles where rolname = 'parallax_ro') then
        execute format('grant usage on schema %I to parallax_ro', current_schema());
        for view in select viewname from pg_views where schemaname = current_schema() and viewname like 'v\_%' loop
            execute format('grant select on %I to parallax_ro', view);
        end loop;
    end if;
end
$$;
