-- Who may report: tokens, certificates, how each vantage came to be, and the record of what people did.

alter table vantage
    add column admitted_at timestamptz,
    add column admitted_by text,
    add column labels      jsonb not null default '{}' check (jsonb_typeof(labels) = 'object'),
    add column keys_from   timestamptz,
    add column retired_at  timestamptz,
    add column last_remote text,
    add column last_coordinator uuid;
comment on column vantage.admitted_at is 'When a person approved it although the configuration does not list it; null: nobody did.';
comment on column vantage.admitted_by is 'Who approved it.';
comment on column vantage.labels is 'Words that describe it, given with its token: used while the configuration does not list it.';
comment on column vantage.keys_from is 'Certificates valid from before this time are refused although never seen here: its keys were replaced then. Null: never.';
comment on column vantage.retired_at is 'When it was removed for good; its history stays. Null: in use.';
comment on column vantage.last_remote is 'Address and port its last stream came from. A personal datum where an agent runs at somebody''s home.';
comment on column vantage.last_coordinator is 'Random identity of the coordinator process that took its last stream.';

create table vantage_change (
    single boolean primary key default true check (single),
    number bigint not null default 0
);
insert into vantage_change default values;
comment on table  vantage_change is 'One row: how often people changed vantages and keys. Coordinators look at it every second, for the notices that get lost.';
comment on column vantage_change.single is 'Always true: there is one row.';
comment on column vantage_change.number is 'Rises by one with each revocation, removal, replacement, renaming and approval.';

create table vantage_former_name (
    name       text primary key,
    vantage_id smallint not null references vantage,
    until      timestamptz not null default clock_timestamp()
);
comment on table  vantage_former_name is 'Names a vantage had before; a certificate made by hand may still carry one.';
comment on column vantage_former_name.name is 'The former name. Free again once another vantage takes it.';
comment on column vantage_former_name.vantage_id is 'Whose it was.';
comment on column vantage_former_name.until is 'When it was renamed, database clock.';

create table join_token (
    id              bigint generated always as identity primary key,
    vantage_id      smallint not null references vantage,
    secret_sha256   bytea not null unique check (length(secret_sha256) = 32),
    made_at         timestamptz not null default clock_timestamp(),
    made_by         text not null,
    expires_at      timestamptz not null,
    used_at         timestamptz,
    used_by_sha256  bytea check (length(used_by_sha256) = 32),
    used_from       text,
    revoked_at      timestamptz,
    refused_count   bigint not null default 0,
    refused_last_at timestamptz,
    refused_last_from text,
    again_last_at   timestamptz,
    check ((used_at is null) = (used_by_sha256 is null))
);
create index join_token_vantage on join_token (vantage_id);
create index join_token_expires on join_token (expires_at);
comment on table  join_token is 'One-use tokens with which agents join, until 91 days after their end and their last use. The secret itself is nowhere: it is printed once.';
comment on column join_token.id is 'Key, for people.';
comment on column join_token.vantage_id is 'Which vantage an agent becomes with it.';
comment on column join_token.secret_sha256 is 'SHA-256 of the secret of 32 random bytes.';
comment on column join_token.made_at is 'When, database clock.';
comment on column join_token.made_by is 'By whom.';
comment on column join_token.expires_at is 'Until when it can be used, database clock.';
comment on column join_token.used_at is 'When it was used; null: not yet.';
comment on column join_token.used_by_sha256 is 'SHA-256 of the public key (SubjectPublicKeyInfo) that used it: the same key again gets the same answer.';
comment on column join_token.used_from is 'Address it was used from. A personal datum where an agent runs at somebody''s home.';
comment on column join_token.revoked_at is 'When a person took it back; null: nobody did.';
comment on column join_token.refused_count is 'How often somebody else came with it after its use.';
comment on column join_token.refused_last_at is 'When that was last.';
comment on column join_token.refused_last_from is 'From which address.';
comment on column join_token.again_last_at is 'When a repetition by the key that used it was last written into the audit table, database clock; null: never.';

create table agent_certificate (
    serial           bytea not null check (length(serial) between 1 and 20),
    vantage_id       smallint not null references vantage,
    key_sha256       bytea not null check (length(key_sha256) = 32),
    authority_sha256 bytea check (length(authority_sha256) = 32),
    how              text not null check (how in ('join', 'renewal', 'late_renewal', 'by_hand')),
    not_before       timestamptz not null,
    not_after        timestamptz not null,
    recorded_at      timestamptz not null default clock_timestamp(),
    coordinator      uuid,
    remote           text,
    token_id         bigint references join_token on delete set null,
    revoked_at       timestamptz,
    primary key (serial, key_sha256)
);
create index agent_certificate_key on agent_certificate (key_sha256);
create index agent_certificate_vantage on agent_certificate (vantage_id, not_after);
create index agent_certificate_end on agent_certificate (not_after);
create index agent_certificate_token on agent_certificate (token_id) where token_id is not null;
comment on table  agent_certificate is 'Certificates of agents: those issued here, and those made by hand, from the first time they were shown. Kept until 91 days after their end, of one key the latest three.';
comment on column agent_certificate.serial is 'Serial number, random here; another tool of the operator''s may count, so it is unique only together with the key.';
comment on column agent_certificate.vantage_id is 'Whose: counts, whatever name the certificate carries (a vantage may have been renamed).';
comment on column agent_certificate.key_sha256 is 'SHA-256 of its public key (SubjectPublicKeyInfo).';
comment on column agent_certificate.authority_sha256 is 'SHA-256 of the public key of the authority that vouches for it; null: made by hand, and it could not be told which.';
comment on column agent_certificate.how is 'join, renewal (over the stream), late_renewal (after its end), or by_hand (parallax vantage issue, or another tool of the operator''s).';
comment on column agent_certificate.not_before is 'Valid from.';
comment on column agent_certificate.not_after is 'Valid until.';
comment on column agent_certificate.recorded_at is 'When this row was written, database clock.';
comment on column agent_certificate.coordinator is 'Random identity of the coordinator process that issued or first saw it.';
comment on column agent_certificate.remote is 'Address it was issued to or first shown from. A personal datum where an agent runs at somebody''s home.';
comment on column agent_certificate.token_id is 'Token it was joined with; null: none, or forgotten.';
comment on column agent_certificate.revoked_at is 'When it was refused for good; null: valid while its time lasts.';

create table enrolment (
    only_row         boolean primary key default true check (only_row),
    coordinators     text[] not null,
    authority_sha256 bytea not null check (length(authority_sha256) = 32),
    written_at       timestamptz not null default clock_timestamp()
);
comment on table  enrolment is 'What a new token must say, as the running coordinators have it. One row, written by each of them at its start and with each change.';
comment on column enrolment.only_row is 'True: there is one row.';
comment on column enrolment.coordinators is 'Where agents reach the coordinators, HOST:PORT, in the order in which they are tried.';
comment on column enrolment.authority_sha256 is 'SHA-256 of the public key of the authority that vouches for the coordinators.';
comment on column enrolment.written_at is 'When it was last written, database clock.';

create table signer (
    public_key bytea primary key check (length(public_key) = 32),
    noted_at   timestamptz not null default clock_timestamp(),
    retired_at timestamptz
);
comment on table  signer is 'Keys that sign orders, as this installation has used them: a coordinator with another one does not start.';
comment on column signer.public_key is 'Ed25519 public key.';
comment on column signer.noted_at is 'When it was made or first used, database clock: agents seen since then were told of it.';
comment on column signer.retired_at is 'When it was trusted no more, database clock; null: agents obey it.';

create table audit (
    id      bigint generated always as identity primary key,
    at      timestamptz not null default clock_timestamp(),
    who     text not null,
    what    text not null,
    subject text not null,
    reason  text not null,
    detail  jsonb not null default '{}'
);
create index audit_at_brin on audit using brin (at);
comment on table  audit is 'What people did, and what happened to secrets. Append only: changes and removals are refused.';
comment on column audit.id is 'Key; rises.';
comment on column audit.at is 'When, database clock.';
comment on column audit.who is 'User of the operating system, the name given with --as, or "coordinator".';
comment on column audit.what is 'Word for the deed, as in token_created, vantage_revoked.';
comment on column audit.subject is 'To what: "vantage NAME", "token ID", "authority FINGERPRINT", "signer FINGERPRINT".';
comment on column audit.reason is 'Why, in the words of who did it.';
comment on column audit.detail is 'Particulars. No secrets.';

create function audit_stays() returns trigger language plpgsql as $$
begin
    raise exception 'the audit table is append only: % refused', tg_op using errcode = 'insufficient_privilege';
end
$$;
create trigger audit_stays before update or delete or truncate on audit
    for each statement execute function audit_stays();
