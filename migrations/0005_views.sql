-- Read-only views for post-mortems, continued in 0008. They are the interface for people who ask with SQL: columns are
-- added, never renamed or removed (v_interface).

create view v_gap as
select v.name as vantage, g.boot_id, g.lane, g.first_sequence, g.last_sequence,
       least(g.last_sequence::numeric - g.first_sequence + 1, 9223372036854775807)::bigint as missing,
       g.noticed_at,
       coalesce(l.covered @> numrange(g.first_sequence, g.last_sequence::numeric + 1), false) as explained,
       l.lost,
       l.reasons,
       l.lost_from,
       l.lost_to,
       l.losses
from observation_gap g
join vantage v on v.id = g.vantage_id
left join lateral (
    select range_agg(numrange(x.first_sequence, x.last_sequence::numeric + 1)) as covered,
           case when count(*) > 0 then least(sum(x.count), 9223372036854775807)::bigint end as lost,
           array_agg(distinct x.reason order by x.reason) as reasons,
           min(x.lost_from) as lost_from,
           max(x.lost_to) as lost_to,
           array_agg(x.observation_id order by x.observation_id) as losses
    from observation_loss x
    where x.vantage_id = g.vantage_id and x.boot_id = g.boot_id and x.lane = g.lane
      and x.first_sequence <= g.last_sequence and x.last_sequence >= g.first_sequence
) l on true;
comment on view v_gap is 'Sequence numbers that never arrived, with what the agent says of them. One row a gap. explained: dropped by the agent, and counted; otherwise nobody knows what they were.';
comment on column v_gap.vantage is 'Whose agent.';
comment on column v_gap.boot_id is 'Start of the agent that numbered them.';
comment on column v_gap.lane is 'urgent or routine.';
comment on column v_gap.first_sequence is 'First missing number.';
comment on column v_gap.last_sequence is 'Last missing number.';
comment on column v_gap.missing is 'How many numbers.';
comment on column v_gap.noticed_at is 'When the number after the gap was stored.';
comment on column v_gap.explained is 'Whether the agent''s records of losses cover the whole gap.';
comment on column v_gap.lost is 'How many observations those records speak of; they may cover other gaps too. Null: no record.';
comment on column v_gap.reasons is 'Why they were dropped: full, old, disk or damaged. Null: no record.';
comment on column v_gap.lost_from is 'When the first of them ended; null: not known.';
comment on column v_gap.lost_to is 'When the last of them ended; null: not known.';
comment on column v_gap.losses is 'The records: v_observation.id.';

create view v_vantage as
select v.name as vantage,
       v.first_seen_at,
       v.last_seen_at,
       v.agent_version,
       v.revoked_at,
       v.clock_offset_ms,
       k.failures as control_failures,
       k.checks as control_checks,
       c.detail -> 'labels' as labels,
       c.detail ->> 'failure_domain' as failure_domain,
       c.name is not null as configured,
       s.verdict as standing,
       s.at as standing_since,
       s.reason as standing_reason,
       g.missing::bigint as observations_missing,
       g.unexplained::bigint as observations_unexplained,
       coalesce(r.refused, 0)::bigint as observations_refused
from vantage v
left join configured c on c.kind = 'vantage' and c.name = v.name
left join lateral (
    select verdict, at, reason from verdict
    where subject_kind = 'vantage' and subject = v.name
    order by id desc limit 1
) s on true
left join lateral (
    -- least() ignores null: a sum of nothing must be 0 before.
    select least(coalesce(sum(missing), 0), 9223372036854775807) as missing,
           least(coalesce(sum(missing) filter (where not explained), 0), 9223372036854775807) as unexplained
    from v_gap where v_gap.vantage = v.name
) g on true
left join lateral (
    select sum(failures)::bigint as failures, sum(checks)::bigint as checks from vantage_controls
    where vantage_id = v.id and told_at > now() - interval '20 minutes'
) k on true
left join lateral (
    select sum(count) as refused from ingest_refusal where vantage_id = v.id
) r on true;
comment on view v_vantage is 'Places that measure, with how they stand now. One row a vantage.';
comment on column v_vantage.vantage is 'Name.';
comment on column v_vantage.first_seen_at is 'First session, database clock; null: never connected.';
comment on column v_vantage.last_seen_at is 'Last message, to within a few seconds.';
comment on column v_vantage.agent_version is 'Version its agent last said it runs.';
comment on column v_vantage.revoked_at is 'When its certificate was refused for good; null: valid.';
comment on column v_vantage.clock_offset_ms is 'Its wall clock less the coordinator''s, milliseconds, as last measured; null: not known.';
comment on column v_vantage.control_failures is 'Checks of its positive controls that failed in 20 minutes, both families; null: nothing said in that time.';
comment on column v_vantage.control_checks is 'Checks of its positive controls in those 20 minutes; with control_failures its own rate of false failures.';
comment on column v_vantage.labels is 'Its labels of the configuration, as an object.';
comment on column v_vantage.failure_domain is 'Uplink it shares with others: two vantages of one domain are one witness.';
comment on column v_vantage.configured is 'Whether the configuration in force names it.';
comment on column v_vantage.standing is 'Whether it may speak: vantage_ok, _degraded, _intercepted, _uplink_down, _captive, _unmeasured or _silent; null: not judged yet.';
comment on column v_vantage.standing_since is 'When that was decided.';
comment on column v_vantage.standing_reason is 'Why, as data: controls reached and failed.';
comment on column v_vantage.observations_missing is 'Sequence numbers of its agent that never arrived, over all starts.';
comment on column v_vantage.observations_unexplained is 'Those of them of which its agent has not said that it dropped them: v_gap.';
comment on column v_vantage.observations_refused is 'Messages and observations of it that were refused, ever.';

create view v_observation as
select o.id, o.observed_at as at, o.received_at, v.name as vantage, o.kind, o.purpose, o.subject, o.resolver, o.family,
       o.address, o.port, o.outcome, o.stage, o.addresses, o.ttl_s, o.attempts, o.attempts_connected,
       round(o.duration_us / 1000.0, 1) as duration_ms, o.late, o.task_id, o.boot_id, o.lane, o.sequence, o.detail
from observation o join vantage v on v.id = o.vantage_id;
comment on view v_observation is 'The log of facts with the vantage''s name. Give a range of received_at: only those days are then read.';
comment on column v_observation.id is 'Key; rises in commit order.';
comment on column v_observation.at is 'When the probe ended.';
comment on column v_observation.received_at is 'When it was stored, database clock. Partition key.';
comment on column v_observation.vantage is 'Where it was measured.';
comment on column v_observation.kind is 'resolution, connection, endpoint_check, control_check, path, loss (observations that were dropped) or missed (rounds that did not run).';
comment on column v_observation.purpose is 'Why: scheduled, confirm, cross_check or verify.';
comment on column v_observation.subject is 'Canary or host name, "node:NAME", resolver name (endpoint_check), control name, address (path), "observations" (loss), or what would have run (missed).';
comment on column v_observation.resolver is 'Resolver that was asked (resolution only).';
comment on column v_observation.family is 'Address family asked for: 4 or 6 (resolution only).';
comment on column v_observation.address is 'Address that was contacted.';
comment on column v_observation.port is 'TCP port that was contacted (connection only).';
comment on column v_observation.outcome is 'Exactly one outcome word.';
comment on column v_observation.stage is 'Last stage tried (endpoint_check only).';
comment on column v_observation.addresses is 'Addresses in answer order (resolution only).';
comment on column v_observation.ttl_s is 'Smallest TTL of the answer, seconds (resolution only).';
comment on column v_observation.attempts is 'Own connection attempts (connection only).';
comment on column v_observation.attempts_connected is 'How many of them completed TCP (connection only).';
comment on column v_observation.duration_ms is 'Whole duration of the probe, milliseconds.';
comment on column v_observation.late is 'True: history only; never evidence for a live verdict.';
comment on column v_observation.task_id is 'Task of the coordinator that asked for it; null when scheduled.';
comment on column v_observation.boot_id is 'Start of the agent that numbered it.';
comment on column v_observation.lane is 'Lane in which it came, each with its own numbering: urgent or routine.';
comment on column v_observation.sequence is 'Its number within that start and lane.';
comment on column v_observation.detail is 'Particulars of the kind, under the names of proto/probe/v1/session.proto.';

create view v_incident as
select i.id, i.opened_at, i.closed_at,
       coalesce(i.closed_at, now()) - i.opened_at as lasted,
       i.closed_at is null as open,
       i.kind, i.vantage, i.subject, i.members, i.changes_made,
       (select count(*) from plan p where p.incident_id = i.id) as plans,
       (select count(*) from incident_evidence e where e.incident_id = i.id) as evidence,
       i.conclusion, i.key
from incident i;
comment on view v_incident is 'Findings that outlasted hysteresis, open and closed. One row an incident.';
comment on column v_incident.id is 'Number people use: parallax explain incident ID, /i/ID.';
comment on column v_incident.opened_at is 'When it opened.';
comment on column v_incident.closed_at is 'When it closed; null: open.';
comment on column v_incident.lasted is 'From opening to closing, or to now.';
comment on column v_incident.open is 'Whether it is open.';
comment on column v_incident.kind is 'The newest finding''s word, that of the verdict it rests on.';
comment on column v_incident.vantage is 'The one vantage it holds at; null: wider.';
comment on column v_incident.subject is 'What it is about: a vantage, a service, a node or a name.';
comment on column v_incident.members is 'Names it affects, sorted.';
comment on column v_incident.changes_made is 'Real changes made for it; a return to native is not counted.';
comment on column v_incident.plans is 'Plans made for it, whatever became of them: v_plan.';
comment on column v_incident.evidence is 'Observations it cites: v_evidence.';
comment on column v_incident.conclusion is 'The finding with its reasons, as data.';
comment on column v_incident.key is 'What identifies it among open incidents.';

create view v_plan as
select p.id, p.incident_id, p.purpose, p.undoes, p.status, p.mode, p.approved_by, p.driver, p.vantage, p.subject,
       p.change ->> 'kind' as change_kind,
       p.change ->> 'name' as name,
       case p.change ->> 'kind' when 'pin' then null else p.change -> 'expects' end as expects,
       case p.change ->> 'kind' when 'pin' then p.change -> 'addresses' else p.change -> 'sets' end as sets,
       (p.change ->> 'ttl_s')::integer as ttl_s,
       p.created_at, p.expires_at, p.applied_at, p.verified_at,
       round(extract(epoch from p.applied_at - p.created_at), 3) as apply_s,
       round(extract(epoch from p.verified_at - p.applied_at), 3) as proof_s,
       p.counted, p.epoch, p.reason, p.undo, p.change
from plan p;
comment on view v_plan is 'Remedies made concrete, returns and rollbacks, with what became of each. One row a plan.';
comment on column v_plan.id is 'Number people use; carried by every write.';
comment on column v_plan.incident_id is 'Why it exists: v_incident.id.';
comment on column v_plan.purpose is 'remedy, return (the fail-back, the unpin) or rollback (its proof failed).';
comment on column v_plan.undoes is 'Plan whose change it takes back.';
comment on column v_plan.status is 'proposed, approved, applying, applied, verified, failed, refused, yielded, rolled_back, expired or undone.';
comment on column v_plan.mode is 'What automation might do with it: observe, propose or act.';
comment on column v_plan.approved_by is 'Person who approved it, or "policy"; null: nobody.';
comment on column v_plan.driver is 'Driver that applies it.';
comment on column v_plan.vantage is 'Vantage whose agent applies it; null: the coordinator.';
comment on column v_plan.subject is 'Service or name it is about.';
comment on column v_plan.change_kind is 'pin, unpin or repoint.';
comment on column v_plan.name is 'Name whose answer it changes.';
comment on column v_plan.expects is 'Addresses that must be there before, as an array; null: nothing (the native answer).';
comment on column v_plan.sets is 'Addresses that are there after, as an array; null: nothing (the native answer).';
comment on column v_plan.ttl_s is 'TTL of what it sets, seconds.';
comment on column v_plan.created_at is 'When it was made.';
comment on column v_plan.expires_at is 'Not applied after this.';
comment on column v_plan.applied_at is 'When the driver confirmed it by reading back.';
comment on column v_plan.verified_at is 'When it was proven from the client''s side.';
comment on column v_plan.apply_s is 'From being made to being applied, seconds.';
comment on column v_plan.proof_s is 'From being applied to being proven, seconds.';
comment on column v_plan.counted is 'Whether it counts against the incident''s changes.';
comment on column v_plan.epoch is 'Lease epoch under which it was made or last taken over.';
comment on column v_plan.reason is 'Why this remedy and this target, as data.';
comment on column v_plan.undo is 'The change that takes it back.';
comment on column v_plan.change is 'The change itself, as data.';

create view v_proof as
select f.plan_id, p.incident_id, f.vantage, f.seen_at,
       round(extract(epoch from f.seen_at - p.applied_at), 3) as after_s,
       f.resolution_id, f.connection_id
from plan_proof f join plan p on p.id = f.plan_id;
comment on view v_proof is 'When each vantage''s own resolver first served a planned answer, and could use it.';
comment on column v_proof.plan_id is 'Plan: v_plan.id.';
comment on column v_proof.incident_id is 'Incident: v_incident.id.';
comment on column v_proof.vantage is 'Vantage whose live resolver was asked.';
comment on column v_proof.seen_at is 'When the proving observation was made.';
comment on column v_proof.after_s is 'Seconds since the change was applied.';
comment on column v_proof.resolution_id is 'Observation that showed the answer: v_observation.id.';
comment on column v_proof.connection_id is 'Observation that showed it usable from there; null where none was asked.';

create view v_timeline as
select incident_id, at, 1 as rank, id as item, 'incident' as source, null::bigint as plan_id, null::text as vantage,
       what, detail
from incident_event
union all
select p.incident_id, e.at, 3, e.id, 'plan', e.plan_id, p.vantage, e.what, e.detail
from plan_event e join plan p on p.id = e.plan_id
union all
select p.incident_id, f.seen_at, 2, f.resolution_id, 'proof', f.plan_id, f.vantage, 'seen',
       jsonb_build_object('resolution', f.resolution_id, 'connection', f.connection_id,
                          'after_s', round(extract(epoch from f.seen_at - p.applied_at), 3))
from plan_proof f join plan p on p.id = f.plan_id;
comment on view v_timeline is 'Everything that happened in an incident: its own events, each step of its plans, each vantage''s proof. Order by at, rank, item.';
comment on column v_timeline.incident_id is 'Incident: v_incident.id.';
comment on column v_timeline.at is 'When.';
comment on column v_timeline.rank is 'Order within one moment: 1 incident, 2 proof, 3 plan.';
comment on column v_timeline.item is 'Order within one moment and source.';
comment on column v_timeline.source is 'incident, plan or proof.';
comment on column v_timeline.plan_id is 'Plan the step belongs to; null: none.';
comment on column v_timeline.vantage is 'Vantage concerned; null: none in particular.';
comment on column v_timeline.what is 'Word for what happened.';
comment on column v_timeline.detail is 'Particulars, as data.';

create view v_matrix as
select v.name as vantage,
       c.kind,
       c.name as item,
       coalesce(c.detail ->> 'hostname', c.name) as name,
       a.verdict,
       a.at as since,
       a.reason -> 'addresses' as addresses,
       a.reason -> 'proven' as proven,
       s.verdict as vantage_standing,
       t.last_seen_at,
       v.position as vantage_position,
       c.position as item_position,
       a.evidence
from configured v
join configured c on c.kind in ('canary', 'service')
left join configured r on r.kind = 'resolver' and r.detail ->> 'role' = 'live'
left join vantage t on t.name = v.name
left join lateral (
    select verdict, at, reason, evidence from verdict
    where subject_kind = 'answer' and subject = coalesce(c.detail ->> 'hostname', c.name)
      and vantage = v.name and resolver = r.name
    order by id desc limit 1
) a on true
left join lateral (
    select verdict from verdict
    where subject_kind = 'vantage' and subject = v.name
    order by id desc limit 1
) s on true
where v.kind = 'vantage';
comment on view v_matrix is 'Now: each configured vantage against each canary and service, as its live resolver answers. A vantage that is not vantage_ok says nothing against a name.';
comment on column v_matrix.vantage is 'Where.';
comment on column v_matrix.kind is 'canary or service.';
comment on column v_matrix.item is 'Name of the canary or of the service.';
comment on column v_matrix.name is 'Name that is resolved.';
comment on column v_matrix.verdict is 'Verdict of the live resolver''s answer there; null: not judged yet.';
comment on column v_matrix.since is 'Since when.';
comment on column v_matrix.addresses is 'Addresses when it was decided, as an array.';
comment on column v_matrix.proven is 'Those of them that were proven from there, as an array.';
comment on column v_matrix.vantage_standing is 'Whether the vantage may speak.';
comment on column v_matrix.last_seen_at is 'When its agent was last heard.';
comment on column v_matrix.vantage_position is 'Order of the vantage in the configuration.';
comment on column v_matrix.item_position is 'Order of the canary or service in the configuration.';
comment on column v_matrix.evidence is 'Observations that decided: v_observation.id.';
