-- The version each vantage's assignment has, so that it rises with every change of the content, and only then.

create table assignment (
    vantage_id     smallint primary key references vantage,
    version        bigint not null,
    content_sha256 bytea not null,
    changed_at     timestamptz not null default now()
);
comment on table  assignment is 'What each vantage was last told to do, as version and fingerprint. The content itself comes from the configuration.';
comment on column assignment.vantage_id is 'Whose.';
comment on column assignment.version is 'Rises with each change. Starts from seconds since 1970, so that it also rises when this database is made anew.';
comment on column assignment.content_sha256 is 'SHA-256 of the encoded content without its version.';
comment on column assignment.changed_at is 'When this version was made, database clock.';
