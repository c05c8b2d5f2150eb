-- What the configuration names, beside the log, so that the page, the command line and SQL draw the same picture.

create table configured (
    kind     text not null check (kind in ('vantage', 'resolver', 'canary', 'node', 'service', 'policy')),
    name     text not null,
    position integer not null,
    detail   jsonb not null,
    primary key (kind, name)
);
comment on table  configured is 'What the configuration in force names. Replaced as a whole by a coordinator when it starts or reloads; history is not kept.';
comment on column configured.kind is 'vantage, resolver, canary, node, service or policy (one row, named policy).';
comment on column configured.name is 'Its name in the configuration.';
comment on column configured.position is 'Order in which pages show it, from 0 within its kind.';
comment on column configured.detail is 'What pages need of it: labels and failure domain; role; port; address; hostname, native and fallbacks; limits in seconds. No secrets.';
