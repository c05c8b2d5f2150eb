-- What was concluded and done: verdict changes, incidents with their evidence, plans with each step.

create table verdict (
    id        bigint generated always as identity primary key,
    at        timestamptz not null,
    vantage   text,
    subject_kind text not null check (subject_kind in ('vantage', 'answer', 'address', 'endpoint', 'node')),
    subject   text not null,
    resolver  text,
    verdict   text not null,
    reason    jsonb not null,
    evidence  bigint[] not null default '{}'
);
-- What is said of every subject now is read from this index alone.
create index verdict_newest on verdict (subject_kind, subject, vantage, resolver, id desc) include (verdict);
create index verdict_at on verdict using brin (at);
comment on table  verdict is 'Every change of a verdict. The current one of a subject is its newest row.';
comment on column verdict.id is 'Key, in order of decision.';
comment on column verdict.at is 'When it was decided.';
comment on column verdict.vantage is 'Where it holds; null: across vantages.';
comment on column verdict.subject_kind is 'vantage, answer (a name as one resolver answers it), address (at a vantage), endpoint (a resolver''s, at a vantage) or node (across vantages).';
comment on column verdict.subject is 'Vantage, name, resolver (endpoint) or node; for an address its target (name or "node:NAME") and the address, a blank between.';
comment on column verdict.resolver is 'Resolver that gave the answer (answer only).';
comment on column verdict.verdict is 'The verdict''s word.';
comment on column verdict.reason is 'Why, as data.';
comment on column verdict.evidence is 'Observations that decided, by id.';

create table incident (
    id        bigint generated always as identity primary key,
    opened_at timestamptz not null,
    closed_at timestamptz,
    key       text not null,
    about     jsonb not null,
    kind      text not null,
    vantage   text,
    subject   text not null,
    members   text[] not null,
    conclusion jsonb not null,
    changes_made integer not null default 0,
    relapses  integer not null default 0,
    check (closed_at is null or closed_at >= opened_at)
);
create unique index incident_open on incident (key) where closed_at is null;
create index incident_closed on incident (closed_at);
comment on table  incident is 'A finding that outlasted hysteresis, from opening to closing.';
comment on column incident.id is 'Number people use.';
comment on column incident.opened_at is 'When it opened.';
comment on column incident.closed_at is 'When it closed; null: open.';
comment on column incident.key is 'What identifies it among open incidents, for example unroutable/branch-kazan or service/fi.';
comment on column incident.about is 'The same, as data.';
comment on column incident.kind is 'The newest finding''s word.';
comment on column incident.vantage is 'The one vantage it holds at; null: wider.';
comment on column incident.subject is 'What it is about: the vantage for answers unroutable there, the service, the node, the name.';
comment on column incident.members is 'Names it affects, sorted.';
comment on column incident.conclusion is 'The finding with its reasons, as data.';
comment on column incident.relapses is 'How often in a row before this its subject was found again within the policy''s relapse window after an incident closed; each doubles how long all must be well until this one closes.';
comment on column incident.changes_made is 'Real changes made for it, of any kind; a return to native is not counted.';

create table incident_event (
    id          bigint generated always as identity primary key,
    incident_id bigint not null references incident,
    at          timestamptz not null,
    what        text not null,
    detail      jsonb not null
);
create index incident_event_incident on incident_event (incident_id, id);
comment on table  incident_event is 'The incident''s timeline.';
comment on column incident_event.id is 'Key, in order.';
comment on column incident_event.incident_id is 'Incident.';
comment on column incident_event.at is 'When.';
comment on column incident_event.what is 'opened, members_changed, no_plan, planned, applied, proven, yielded, plan_failed, proof_failed, rollback_unproven, closed.';
comment on column incident_event.detail is 'Particulars, as data.';

create table incident_evidence (
    incident_id    bigint not null references incident,
    observation_id bigint not null,
    says           text not null,
    primary key (incident_id, observation_id)
);
comment on table  incident_evidence is 'Observations an incident cites. They are kept as long as the incident.';
comment on column incident_evidence.incident_id is 'Incident.';
comment on column incident_evidence.observation_id is 'Row of the log.';
comment on column incident_evidence.says is 'What it shows: fails_here, seen_elsewhere, other_resolver, node_probe or control.';

create table plan (
    id          bigint generated always as identity primary key,
    incident_id bigint not null references incident,
    epoch       bigint not null,
    created_at  timestamptz not null,
    expires_at  timestamptz not null,
    purpose     text not null check (purpose in ('remedy', 'return', 'rollback')),
    undoes      bigint references plan,
    driver      text not null,
    vantage     text,
    subject     text not null,
    change      jsonb not null,
    undo        jsonb not null,
    reason      jsonb not null,
    mode        text not null check (mode in ('observe', 'propose', 'act')),
    approved_by text,
    status      text not null check (status in ('proposed', 'approved', 'applying', 'applied', 'verified', 'failed', 'refused', 'yielded', 'rolled_back', 'expired', 'undone')),
    applied_at  timestamptz,
    verified_at timestamptz,
    counted     boolean not null default false
);
create index plan_incident on plan (incident_id, id);
create unique index plan_one_in_flight on plan (driver, coalesce(vantage, '')) where status in ('approved', 'applying');
comment on table  plan is 'A remedy made concrete. Immutable but for its status and times; never deleted.';
comment on column plan.id is 'Number people use; carried by every write.';
comment on column plan.incident_id is 'Why it exists.';
comment on column plan.epoch is 'Lease epoch under which it was made or last taken over; a write with a lower one is refused.';
comment on column plan.created_at is 'When it was made.';
comment on column plan.expires_at is 'Not applied after this. How long a pin stands without renewal is the policy''s.';
comment on column plan.purpose is 'remedy, return (the fail-back, the unpin) or rollback (proof failed).';
comment on column plan.undoes is 'Plan whose change it takes back.';
comment on column plan.driver is 'Driver that applies it.';
comment on column plan.vantage is 'Vantage whose agent applies it; null: the coordinator.';
comment on column plan.subject is 'Service or name.';
comment on column plan.change is 'The change: expects, sets.';
comment on column plan.undo is 'The change that takes it back.';
comment on column plan.reason is 'Why this remedy and this target, as data.';
comment on column plan.mode is 'What automation might do with it when it was made.';
comment on column plan.approved_by is 'Person who approved it; "policy" when the mode was act; null: nobody yet.';
comment on column plan.status is 'proposed -> approved -> applying -> applied -> verified -> undone; or where it ended.';
comment on column plan.applied_at is 'When the driver confirmed it by reading back.';
comment on column plan.verified_at is 'When it was proven from the client''s side.';
comment on column plan.counted is 'Whether it counts against the incident''s changes.';

create table plan_event (
    id      bigint generated always as identity primary key,
    plan_id bigint not null references plan,
    at      timestamptz not null,
    what    text not null,
    detail  jsonb not null
);
create index plan_event_plan on plan_event (plan_id, id);
comment on table  plan_event is 'Every step of a plan: journalled before it is done, and what came of it.';
comment on column plan_event.id is 'Key, in order.';
comment on column plan_event.plan_id is 'Plan.';
comment on column plan_event.at is 'When.';
comment on column plan_event.what is 'intent, read, applied, already, conflict, refused, failed, uncertain, proof, proof_failed, verified, taken_over, renewed, expired.';
comment on column plan_event.detail is 'Particulars, as data. No secrets.';

create table plan_proof (
    plan_id        bigint not null references plan,
    vantage        text not null,
    seen_at        timestamptz not null,
    resolution_id  bigint not null,
    connection_id  bigint,
    primary key (plan_id, vantage)
);
comment on table  plan_proof is 'When each vantage''s own resolver first served the planned answer, and the connection that proved it usable.';
comment on column plan_proof.plan_id is 'Plan.';
comment on column plan_proof.vantage is 'Vantage whose live resolver was asked.';
comment on column plan_proof.seen_at is 'When the proving observation was made.';
comment on column plan_proof.resolution_id is 'Observation that showed the answer.';
comment on column plan_proof.connection_id is 'Observation that showed it usable from there; null where none was asked.';

create table write_freeze (
    id        bigint generated always as identity primary key,
    at        timestamptz not null default now(),
    by        text not null,
    reason    text not null,
    thawed_at timestamptz,
    thawed_by text
);
comment on table  write_freeze is 'Operator''s stop of every write. Frozen while a row without thawed_at exists.';
comment on column write_freeze.id is 'Key.';
comment on column write_freeze.at is 'Since when.';
comment on column write_freeze.by is 'Who froze.';
comment on column write_freeze.reason is 'Why.';
comment on column write_freeze.thawed_at is 'Until when; null: still frozen.';
comment on column write_freeze.thawed_by is 'Who thawed.';
