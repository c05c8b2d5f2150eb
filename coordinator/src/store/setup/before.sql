-- An installation of the state before, with a row in every table.
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
insert into assignment (vantage_id, version, content_sha256) values (1, 1764500000, '\x00');
insert into configured (kind, name, position, detail) values ('vantage', 'branch-kazan', 0, '{}');
