-- The log: who reports, what was observed, and how far each agent's numbering was stored.

create table vantage (
    id          smallint generated always as identity primary key,
    name        text not null unique,
    first_seen_at timestamptz,
    last_seen_at  timestamptz,
    agent_version text,
    revoked_at  timestamptz,
    clock_offset_ms bigint,
    clock_told_at   timestamptz
) with (fillfactor = 50);
comment on table  vantage is 'Named places that measure; one agent runs there.';
comment on column vantage.id is 'Short key used by the log.';
comment on column vantage.name is 'Name of the configuration and of the agent''s certificate.';
comment on column vantage.first_seen_at is 'First session, by the database''s clock.';
comment on column vantage.last_seen_at is 'Last message of a session, by the database''s clock, to within a few seconds.';
comment on column vantage.agent_version is 'Version the agent last said it runs.';
comment on column vantage.revoked_at is 'When its certificate was refused for good; null: valid.';
comment on column vantage.clock_offset_ms is 'Its wall clock less the coordinator''s, milliseconds, as its agent last measured it; null: not known.';
comment on column vantage.clock_told_at is 'When it said so, database clock.';

create table vantage_controls (
    vantage_id smallint not null references vantage,
    family     smallint not null check (family in (4, 6)),
    failures   integer not null,
    checks     integer not null,
    told_at    timestamptz not null,
    primary key (vantage_id, family)
) with (fillfactor = 50);
comment on table  vantage_controls is 'How a vantage''s positive controls did in the 20 minutes before it last said so: its own rate of false failures.';
comment on column vantage_controls.vantage_id is 'Which vantage.';
comment on column vantage_controls.family is 'Address family of the controls: 4 or 6.';
comment on column vantage_controls.failures is 'Checks that failed.';
comment on column vantage_controls.checks is 'Checks in all.';
comment on column vantage_controls.told_at is 'When its agent said so, database clock.';

create table agent_cursor (
    vantage_id    smallint not null references vantage,
    boot_id       uuid not null,
    lane          text not null check (lane in ('urgent', 'routine')),
    last_sequence bigint not null,
    started_at    timestamptz not null default now(),
    updated_at    timestamptz not null default now(),
    primary key (vantage_id, boot_id, lane)
) with (fillfactor = 50);
comment on table  agent_cursor is 'Highest stored sequence number per start of an agent and lane. Advances in the transaction that stores the rows, so redelivery changes nothing.';
comment on column agent_cursor.vantage_id is 'Whose agent.';
comment on column agent_cursor.boot_id is 'Random identity of one start of the agent.';
comment on column agent_cursor.lane is 'Which of its two numberings: urgent (what a verdict may rest on) or routine (successes like the ones before).';
comment on column agent_cursor.last_sequence is 'Everything up to and including this number is stored or known as a gap.';
comment on column agent_cursor.started_at is 'First batch of this start in this lane, database time.';
comment on column agent_cursor.updated_at is 'Last advance, database time.';

create table observation_gap (
    vantage_id     smallint not null references vantage,
    boot_id        uuid not null,
    lane           text not null check (lane in ('urgent', 'routine')),
    first_sequence bigint not null,
    last_sequence  bigint not null,
    noticed_at     timestamptz not null default now(),
    primary key (vantage_id, boot_id, lane, first_sequence)
);
comment on table  observation_gap is 'Sequence numbers that never arrived (a spool that had to drop, a lost disk). What the agent says of them is in observation_loss; v_gap shows both.';
comment on column observation_gap.vantage_id is 'Whose agent.';
comment on column observation_gap.boot_id is 'Which start of it.';
comment on column observation_gap.lane is 'Which numbering of it: urgent or routine.';
comment on column observation_gap.first_sequence is 'First missing number.';
comment on column observation_gap.last_sequence is 'Last missing number.';
comment on column observation_gap.noticed_at is 'When the number after the gap was stored.';

create table observation_loss (
    observation_id bigint primary key,
    vantage_id     smallint not null references vantage,
    boot_id        uuid not null,
    lane           text not null check (lane in ('urgent', 'routine')),
    first_sequence bigint not null,
    last_sequence  bigint not null,
    reason         text not null check (reason in ('full', 'old', 'disk', 'damaged')),
    count          bigint not null,
    lost_from      timestamptz,
    lost_to        timestamptz
);
create index observation_loss_place on observation_loss (vantage_id, boot_id, lane);
comment on table  observation_loss is 'What agents say of observations that they measured and then dropped: explains gaps. Written with the row of the log it repeats, and kept when that day of the log is gone.';
comment on column observation_loss.observation_id is 'Row of the log that says so.';
comment on column observation_loss.vantage_id is 'Whose agent.';
comment on column observation_loss.boot_id is 'Start of the agent that numbered what was dropped.';
comment on column observation_loss.lane is 'Lane in which it was numbered: urgent or routine.';
comment on column observation_loss.first_sequence is 'First number of a range that holds all that were dropped.';
comment on column observation_loss.last_sequence is 'Last number of that range.';
comment on column observation_loss.reason is 'Why: full (the spool was at its cap), old (older than it keeps), disk (it took nothing and memory was full) or damaged (what was on disk could not be read).';
comment on column observation_loss.count is 'How many were dropped; 0: not known, the agent could not read what it had.';
comment on column observation_loss.lost_from is 'When the first of them ended: received minus age; null: not known, they are of an earlier start.';
comment on column observation_loss.lost_to is 'When the last of them ended; null: not known.';

create table observation_unreadable (
    observation_id bigint primary key,
    why            text not null,
    noticed_at     timestamptz not null default now()
);
comment on table  observation_unreadable is 'Rows of the log that a coordinator could not read, as after a downgrade: they are shown and decide nothing.';
comment on column observation_unreadable.observation_id is 'Row of the log.';
comment on column observation_unreadable.why is 'Column, and what is wrong with it, for people.';
comment on column observation_unreadable.noticed_at is 'When the coordinator that decides first met it, database clock.';

create table ingest_refusal (
    vantage_id smallint not null references vantage,
    reason     text not null,
    count      bigint not null,
    last_at    timestamptz not null default now(),
    last_detail text not null,
    primary key (vantage_id, reason)
);
comment on table  ingest_refusal is 'Messages and observations that were refused, counted by reason; never stored, never blocking the rest.';
comment on column ingest_refusal.vantage_id is 'Who sent them.';
comment on column ingest_refusal.reason is 'Word for the kind of fault.';
comment on column ingest_refusal.count is 'How many, ever.';
comment on column ingest_refusal.last_at is 'When the last one came.';
comment on column ingest_refusal.last_detail is 'What was wrong with the last one, for people.';

create sequence observation_id_seq;

create table observation (
    id          bigint not null default nextval('observation_id_seq'),
    received_at timestamptz not null default clock_timestamp(),
    observed_at timestamptz not null,
    vantage_id  smallint not null,
    boot_id     uuid not null,
    lane        text not null check (lane in ('urgent', 'routine')),
    sequence    bigint not null,
    late        boolean not null,
    purpose     text not null check (purpose in ('scheduled', 'confirm', 'cross_check', 'verify')),
    task_id     bigint,
    duration_us bigint not null,
    kind        text not null check (kind in ('resolution', 'connection', 'endpoint_check', 'control_check', 'path', 'loss', 'missed')),
    subject     text not null,
    resolver    text,
    family      smallint,
    address     inet,
    port        integer,
    outcome     text not null,
    stage       text,
    addresses   inet[],
    ttl_s       integer,
    attempts    smallint,
    attempts_connected smallint,
    detail      jsonb
) partition by range (received_at);
create index observation_received_brin on observation using brin (received_at) with (autosummarize = on);
-- Few rows, and pages look for them by address.
create index observation_path on observation (address) where kind = 'path';
-- A tree costs the writer a fifteenth more than a block-range index, because it grows at its right edge only; the reader,
-- who asks for the newest rows many times a second, would scan every block that is not summarised yet.
create index observation_id on observation (id);
comment on table  observation is 'The log of facts, one row a measured fact, partitioned by day of receipt (UTC). Append only.';
comment on column observation.id is 'Key; rises in commit order (writers are serialised by an advisory lock).';
comment on column observation.received_at is 'When the coordinator stored it, database clock. Partition key.';
comment on column observation.observed_at is 'When the probe ended: received minus the age the agent measured with its monotonic clock.';
comment on column observation.vantage_id is 'Where it was measured.';
comment on column observation.boot_id is 'Start of the agent that numbered it.';
comment on column observation.lane is 'Lane in which it came, each with its own numbering: urgent or routine.';
comment on column observation.sequence is 'Its number within that start and lane.';
comment on column observation.late is 'True: history only (old, or of an earlier boot); never evidence for a live verdict.';
comment on column observation.purpose is 'Why it was measured: scheduled, confirm, cross_check or verify.';
comment on column observation.task_id is 'Task of the coordinator that asked for it; null when scheduled.';
comment on column observation.duration_us is 'Whole duration of the probe, microseconds.';
comment on column observation.kind is 'resolution, connection, endpoint_check, control_check, path, loss (observations that were dropped) or missed (rounds that did not run).';
comment on column observation.subject is 'Canary or host name, "node:NAME", resolver name (endpoint_check), control name, address (path), "observations" (loss), or what would have run (missed).';
comment on column observation.resolver is 'Resolver that was asked (resolution only).';
comment on column observation.family is 'Address family asked for: 4 or 6 (resolution only).';
comment on column observation.address is 'Address that was contacted; null: none was, or the kind keeps it in detail.';
comment on column observation.port is 'TCP port that was contacted (connection only).';
comment on column observation.outcome is 'Exactly one outcome word; the list with what produces each is docs/outcomes.md.';
comment on column observation.stage is 'Last stage tried: bootstrap, tcp, tls, http, dns (endpoint_check only).';
comment on column observation.addresses is 'Addresses in answer order (resolution only). Empty unless answered: what came with an error is in detail, as addresses_not_used.';
comment on column observation.ttl_s is 'Smallest TTL of the answer, seconds (resolution only).';
comment on column observation.attempts is 'Own connection attempts, each from another source port (connection only).';
comment on column observation.attempts_connected is 'How many of them completed TCP (connection only).';
comment on column observation.detail is 'Particulars of the kind, under the names of proto/probe/v1/session.proto: times per stage in microseconds, the reply''s code, flags and TTLs, each attempt, hops, losses. Bytes are in hexadecimal.';

create table lease (
    name       text primary key,
    holder     uuid not null,
    epoch      bigint not null,
    expires_at timestamptz not null
);
comment on table  lease is 'Exactly one coordinator runs the tasks. Every plan and every write carries the epoch; a lower one is refused.';
comment on column lease.name is 'What is leased: tasks.';
comment on column lease.holder is 'Random identity of the coordinator process that holds it.';
comment on column lease.epoch is 'Rises each time the holder changes.';
comment on column lease.expires_at is 'When another may take it, database clock.';
