-- An installation that grew with the program: a row in every table, each put in as soon as its migration made the table.

-- state 1
insert into vantage (name, first_seen_at, last_seen_at, agent_version) values ('branch-kazan', now(), now(), '0.1.0');
insert into vantage_controls (vantage_id, family, failures, checks, told_at) values (1, 4, 0, 60, now());
insert into agent_cursor (vantage_id, boot_id, lane, last_sequence)
    values (1, '00000000-0000-0000-0000-00000000000a', 'urgent', 12),
           (1, '00000000-0000-0000-0000-00000000000a', 'routine', 100);
insert into observation_gap (vantage_id, boot_id, lane, first_sequence, last_sequence)
    values (1, '00000000-0000-0000-0000-00000000000a', 'urgent', 3, 6);
insert into observation_loss (observation_id, vantage_id, boot_id, lane, first_sequence, last_sequence, reason, count)
    values (3, 1, '00000000-0000-0000-0000-00000000000a', 'routine', 5, 6, 'full', 2);
insert into ingest_refusal (vantage_id, reason, count, last_detail) values (1, 'unknown_word', 2, 'outcome 99');
insert into observation_unreadable (observation_id, why) values (2, 'outcome: the word is of another version');
insert into observation (observed_at, vantage_id, boot_id, lane, sequence, late, purpose, duration_us, kind, subject, outcome, resolver, family, addresses)
    values (now(), 1, '00000000-0000-0000-0000-00000000000a', 'urgent', 1, false, 'scheduled', 900, 'resolution', 'cdnjs.cloudflare.com', 'answered', 'live', 4, '{8.6.112.0,8.47.69.0}');
insert into observation (observed_at, vantage_id, boot_id, lane, sequence, late, purpose, duration_us, kind, subject, outcome, address, port)
    values (now(), 1, '00000000-0000-0000-0000-00000000000a', 'urgent', 2, false, 'scheduled', 3000000, 'connection', 'cdnjs.cloudflare.com', 'silent', '8.6.112.0', 443);
insert into lease (name, holder, epoch, expires_at) values ('tasks', '00000000-0000-0000-0000-00000000000b', 3, now());

-- state 2
insert into verdict (at, vantage, subject_kind, subject, resolver, verdict, reason, evidence)
    values (now(), 'branch-kazan', 'answer', 'cdnjs.cloudflare.com', 'live', 'unroutable_here', '{}', '{1,2}');
insert into incident (opened_at, key, about, kind, vantage, subject, members, conclusion, changes_made)
    values (now(), 'answers@branch-kazan', '{}', 'answer_unroutable_here', 'branch-kazan', 'canaries', '{cdnjs.cloudflare.com}', '{}', 1);
insert into incident_event (incident_id, at, what, detail) values (1, now(), 'opened', '{}');
insert into incident_evidence (incident_id, observation_id, says) values (1, 2, 'silent');
insert into plan (incident_id, epoch, created_at, expires_at, purpose, driver, vantage, subject, change, undo, reason, mode, status)
    values (1, 3, now(), now(), 'remedy', 'pin', 'branch-kazan', 'cdnjs.cloudflare.com', '{}', '{}', '{}', 'act', 'verified');
insert into plan_event (plan_id, at, what, detail) values (1, now(), 'applied', '{}');
insert into plan_proof (plan_id, vantage, seen_at, resolution_id, connection_id) values (1, 'branch-kazan', now(), 1, 2);
insert into write_freeze (by, reason) values ('anna', 'maintenance');

-- state 3
insert into assignment (vantage_id, version, content_sha256) values (1, 1764500000, '\x00');

-- state 4
insert into configured (kind, name, position, detail) values ('vantage', 'branch-kazan', 0, '{}');

-- state 6
insert into vantage_former_name (name, vantage_id) values ('kazan', 1);
insert into join_token (vantage_id, secret_sha256, made_by, expires_at, used_at, used_by_sha256)
    values (1, sha256('secret'), 'anna', now(), now(), sha256('key'));
insert into agent_certificate (serial, vantage_id, key_sha256, authority_sha256, how, not_before, not_after, token_id)
    values ('\x0102', 1, sha256('key'), sha256('ca'), 'join', now(), now() + interval '30 days', 1);
insert into enrolment (coordinators, authority_sha256) values ('{parallax.example.net:8443}', sha256('ca'));
insert into signer (public_key) values (sha256('signer'));
insert into audit (who, what, subject, reason) values ('anna', 'token_created', 'vantage branch-kazan', 'for an agent to join');

-- state 7
insert into coordinator (instance, name, alive_until) values ('00000000-0000-0000-0000-00000000000b', 'c-1:8443', now());
insert into session (vantage_id, boot_id, instance, remote, since)
    values (1, '00000000-0000-0000-0000-00000000000a', '00000000-0000-0000-0000-00000000000b', '192.0.2.7:40000', now());
insert into session_clone (vantage_id, boot_id, remote, other_boot_id, other_remote)
    values (1, '00000000-0000-0000-0000-00000000000a', '192.0.2.7:40000', '00000000-0000-0000-0000-00000000000c', '192.0.2.8:40000');
insert into relay (to_instance, from_instance, kind, vantage, task_id, epoch, payload, deadline_at)
    values ('00000000-0000-0000-0000-00000000000b', '00000000-0000-0000-0000-00000000000d', 'task', 'branch-kazan', 1, 3, '{}', now());

-- state 8
insert into watch (epoch, began_at, until) values (3, now(), now());
insert into hourly (hour, vantage_id, kind, subject, resolver, family, outcome, probes, late, duration_us_total, duration_us_max, durations)
    values (date_trunc('hour', now()), 1, 'connection', 'cdnjs.cloudflare.com', '', 4, 'silent', 1, 0, 3000000, 3000000, '{"43": 1}');
insert into hourly_verdict (hour, subject_kind, subject, vantage, resolver, verdict, presence, seconds)
    values (date_trunc('hour', now()), 'answer', 'cdnjs.cloudflare.com', 'branch-kazan', 'live', 'unroutable_here', 'offline', 60);
insert into answer_epoch (vantage_id, subject, resolver, family, began_at, last_at, outcome, addresses, resolutions)
    values (1, 'cdnjs.cloudflare.com', 'live', 4, now(), now(), 'answered', '{8.6.112.0,8.47.69.0}', 1);
insert into history_position (observation_id, received_at, hour) values (2, now(), date_trunc('hour', now()));
insert into upkeep (what, ran_at, behind_s) values ('days', now(), 0);
insert into config_version (sha256, content, named, topology) values (sha256('{}'), '{}', '{}', '{}');
insert into config_in_force (number, coordinator, host, how, by)
    values (1, '00000000-0000-0000-0000-00000000000b', 'c-1', 'start', 'parallax');
insert into config_reload (coordinator, host, how, number)
    values ('00000000-0000-0000-0000-00000000000b', 'c-1', 'start', 1);
