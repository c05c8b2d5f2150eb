//! A replay as people and programs read it: what was stored, what comes out of the log again, and what another policy would
//! have made of it, side by side.

use std::collections::BTreeSet;
use std::time::Duration;

use parallax_decide::finding::Subject;
use parallax_decide::incident::IncidentId;
use parallax_decide::time::Timestamp;
use serde::Serialize;

use super::SCHEMA;
use super::moment::{At, Zone, coarse};
use crate::judging::warm_up;
use crate::replay::course::{CHANGES_MAX, Course, Incident, WouldBe};
use crate::replay::{Asked, Outcome, beside};
use crate::store::read::replay::{INCIDENTS_MAX, Really};
use crate::words::{self, State, finding, plan as plan_words, verdict};

mod csv;
mod text;

pub use csv::csv;
pub use text::text;

/// Two times that differ by less count as the same: live detection looks several times a second, at moments of its own.
const SAME_WITHIN: Duration = Duration::from_secs(1);

/// The replay.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Replay {
    /// Version of this JSON.
    pub schema: u32,
    /// Begin of the span, cut where the log begins.
    pub from: At,
    /// End of the span.
    pub to: At,
    /// When the log begins.
    pub log_begins: At,
    /// From when on it was read.
    pub read_from: At,
    /// Observations that were folded.
    pub observations: u64,
    /// Rows that this version cannot read.
    pub unreadable: u64,
    /// Moments that were judged.
    pub judged: u64,
    /// How often judging happened when nothing was new, milliseconds.
    pub step_ms: u64,
    /// Seconds of the span in which no coordinator judged.
    pub unwatched_s: u64,
    /// Numbers of the configurations that were in force.
    pub configurations: Vec<i32>,
    /// File of the policy that was rehearsed.
    pub policy: Option<String>,
    /// What really happened.
    pub stored: Side,
    /// What comes out of the log again, under the configuration of the day.
    pub replayed: Side,
    /// What another policy would have made of it.
    pub rehearsed: Option<Side>,
    /// What must be known to read it right.
    pub notes: Vec<String>,
}

/// One of the three.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Side {
    /// Incidents, in order of opening.
    pub incidents: Vec<Told>,
    /// How many of them came back within the policy's relapse window.
    pub flaps: usize,
    /// Mean time from the first failed probe to the opening, seconds; none: of no incident known.
    pub detected_after_mean_s: Option<f64>,
    /// The longest, seconds.
    pub detected_after_max_s: Option<f64>,
    /// Of how many incidents it is known.
    pub detected: usize,
    /// Incidents that are stored as well: kind, names, opening and closing the same to within a second.
    pub as_stored: usize,
    /// Changes, in order.
    pub changes: Vec<Changed>,
}

/// An incident of one side.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Told {
    /// Number of the stored incident; none: there is none.
    pub stored: Option<i64>,
    /// What identifies it among open ones.
    pub key: String,
    /// Kind's word.
    pub kind: String,
    /// Kind in words.
    pub title: String,
    /// What it is drawn as.
    pub state: State,
    /// Where it holds.
    pub place: String,
    /// What it is about.
    pub about: String,
    /// Everything it affected, sorted.
    pub members: Vec<String>,
    /// When it opened.
    pub opened_at: At,
    /// When it closed; none: open at the end.
    pub closed_at: Option<At>,
    /// Seconds from the first failed probe to the opening; none: not known.
    pub detected_after_s: Option<f64>,
    /// It was open when the replay began, and stands with its stored opening.
    pub carried: bool,
    /// Whether it is stored just so, to within a second.
    pub as_stored: bool,
}

/// A change of one side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Changed {
    /// When it was, or would be, decided.
    pub at: At,
    /// Stored plan; none: there is none.
    pub plan: Option<i64>,
    /// Key of its incident.
    pub key: String,
    /// Service or name.
    pub item: String,
    /// remedy, return or rollback.
    pub purpose: &'static str,
    /// The change in words.
    pub change: String,
    /// What automation may do with it.
    pub mode: &'static str,
    /// What became of it, or why guards refuse it.
    pub ended: String,
}

impl Replay {
    /// From what came out.
    #[must_use]
    pub fn of(asked: &Asked, outcome: &Outcome, policy: Option<String>, zone: &Zone) -> Self {
        let replayed = side(&outcome.replayed, outcome);
        let ms = u64::try_from(asked.step.as_millis()).unwrap_or(u64::MAX);
        Self {
            schema: SCHEMA,
            from: At(outcome.from),
            to: At(outcome.to),
            log_begins: At(outcome.log_begins),
            read_from: At(outcome.read_from),
            observations: outcome.observations,
            unreadable: outcome.unreadable,
            judged: outcome.judged,
            step_ms: ms,
            unwatched_s: outcome.unwatched.as_secs(),
            configurations: outcome.versions.clone(),
            policy,
            stored: stored(outcome, &replayed),
            rehearsed: outcome.rehearsed.as_ref().map(|course| side(course, outcome)),
            replayed,
            notes: notes(asked, outcome, zone),
        }
    }
}

fn notes(asked: &Asked, outcome: &Outcome, zone: &Zone) -> Vec<String> {
    let mut notes = Vec::new();
    let begins = zone.date_time(outcome.log_begins);
    if outcome.from > asked.from {
        notes.push(format!(
            "the log begins at {begins}; what was before is gone by retention or was never measured, and is not replayed"
        ));
    } else if outcome.read_from >= outcome.log_begins
        && outcome.log_begins.plus(warm_up(outcome.replayed.policy())) > outcome.from
    {
        notes.push(format!(
            "the log begins at {begins}, shortly before --from: the first verdicts rest on less than live detection had"
        ));
    }
    if outcome.unwatched > SAME_WITHIN {
        notes.push(format!(
            "for {} of the span no coordinator judged: that time is unknown, and is not replayed",
            coarse(outcome.unwatched)
        ));
    }
    if outcome.unreadable > 0 {
        let rows = words::count(usize::try_from(outcome.unreadable).unwrap_or(usize::MAX), "row");
        notes.push(format!("{rows} of the log cannot be read by this version and decide nothing, as live"));
    }
    if outcome.not_carried > 0 {
        let incidents = words::count(outcome.not_carried, "incident");
        notes.push(format!("{incidents} that were open before cannot be read by this version and are left out"));
    }
    if outcome.versions.len() > 1 {
        notes.push(format!("{} configurations were in force, each is used from its time on", outcome.versions.len()));
    }
    if i64::try_from(outcome.really.len()).is_ok_and(|incidents| incidents >= INCIDENTS_MAX) {
        notes.push(format!("only the first {INCIDENTS_MAX} stored incidents are compared: take a shorter span"));
    }
    if outcome.rehearsed.is_some() {
        notes.push(
            "a rehearsal sees the world as it was measured: at the intervals of then, and with the changes that were \
             really made. What one of them healed before the other policy would have seen it, that policy never sees. Its \
             own changes are taken as made and proven at once; the stops of an operator are not in it"
                .to_owned(),
        );
    }
    notes
}

fn about(subject: &Subject, members: &[String]) -> (String, String) {
    (finding::place(subject), finding::about(subject, members))
}

fn seconds(span: Duration) -> f64 {
    (span.as_secs_f64() * 10.0).round() / 10.0
}

fn told(one: &Incident, stored: Option<&Really>, outcome: &Outcome) -> Told {
    let members: Vec<String> = one.members.iter().cloned().collect();
    let (place, about) = about(&one.subject, &members);
    let end = |closed: Option<Timestamp>| closed.filter(|closed| *closed <= outcome.to);
    let near = |a: Timestamp, b: Timestamp| a.since(b).max(b.since(a)) <= SAME_WITHIN;
    let same_end = |stored: &Really| match (end(one.closed_at), end(stored.closed_at)) {
        (Some(here), Some(there)) => near(here, there),
        (None, None) => true,
        // Closed at the very end by one of them.
        (Some(only), None) | (None, Some(only)) => near(only, outcome.to),
    };
    let as_stored = stored.is_some_and(|stored| {
        // The last finding of an incident that goes on beyond the span may be another one.
        let kind = if end(stored.closed_at).is_some() {
            Some(stored.kind.as_str())
        } else {
            stored.finding_at(outcome.to).map(|finding| finding.kind.as_str())
        };
        near(one.opened_at, stored.opened_at) && same_end(stored) && kind == Some(one.kind.as_str()) && {
            let until = stored.findings.iter().filter(|(at, _)| *at <= outcome.to);
            until.flat_map(|(_, finding)| &finding.members).collect::<BTreeSet<_>>() == one.members.iter().collect()
        }
    });
    Told {
        stored: stored.map(|stored| stored.id.0),
        key: one.key.clone(),
        kind: one.kind.clone(),
        title: verdict::kind_title(&one.kind),
        state: verdict::kind_state(&one.kind),
        place,
        about,
        members,
        opened_at: At(one.opened_at),
        closed_at: one.closed_at.map(At),
        detected_after_s: one.onset.map(|onset| seconds(one.opened_at.since(onset))),
        carried: one.carried,
        as_stored,
    }
}

fn side(course: &Course, outcome: &Outcome) -> Side {
    let incidents = course.incidents(outcome.from, outcome.to);
    let matched = beside::matched(&incidents, &outcome.really, outcome.to);
    let told: Vec<Told> = incidents.iter().zip(matched).map(|(one, stored)| told(one, stored, outcome)).collect();
    let changes = course.changes(outcome.from, outcome.to);
    let planned = beside::planned(&changes, &outcome.plans);
    let changes = changes
        .iter()
        .zip(planned)
        .map(|(one, plan)| changed(one, plan.map(|kept| kept.record.id.0), course.makes_changes()))
        .collect();
    of(told, changes, course.policy().relapse_window)
}

fn changed(one: &WouldBe, plan: Option<i64>, made: bool) -> Changed {
    let refused: Vec<String> = one.refused.iter().map(plan_words::refusal).collect();
    Changed {
        at: At(one.at),
        plan,
        key: one.key.clone(),
        item: one.item.clone(),
        purpose: one.purpose.word(),
        change: plan_words::change(&one.change),
        mode: plan_words::mode(one.mode),
        ended: if refused.is_empty() {
            if made { "would be made" } else { "would be planned" }.to_owned()
        } else {
            format!("a guard would refuse it: {}", refused.join("; "))
        },
    }
}

/// What really happened, with the detection times of the replay: it knows the probes.
fn stored(outcome: &Outcome, replayed: &Side) -> Side {
    let onset = |id: IncidentId| {
        let twin = replayed.incidents.iter().find(|one| one.stored == Some(id.0))?;
        let after = Duration::from_secs_f64(twin.detected_after_s?.max(0.0));
        Some(twin.opened_at.0.minus(after))
    };
    let open = outcome.really.iter().filter(|one| one.closed_at.is_none_or(|closed| closed >= outcome.from));
    let told = open.map(|one| {
        let (place, about) = match one.finding_at(outcome.to) {
            Some(found) => about(&found.subject, &one.members),
            None => (String::new(), one.key.clone()),
        };
        Told {
            stored: Some(one.id.0),
            key: one.key.clone(),
            kind: one.kind.clone(),
            title: verdict::kind_title(&one.kind),
            state: verdict::kind_state(&one.kind),
            place,
            about,
            members: one.members.clone(),
            opened_at: At(one.opened_at),
            closed_at: one.closed_at.map(At),
            detected_after_s: onset(one.id).map(|onset| seconds(one.opened_at.since(onset))),
            carried: false,
            as_stored: true,
        }
    });
    let made = outcome.plans.iter().filter(|kept| {
        let at = kept.record.created_at;
        at >= outcome.from && at <= outcome.to
    });
    let changes = made.take(CHANGES_MAX).map(|kept| Changed {
        at: At(kept.record.created_at),
        plan: Some(kept.record.id.0),
        key: kept.key.clone(),
        item: kept.record.plan.item.clone(),
        purpose: kept.record.plan.purpose.word(),
        change: plan_words::change(&kept.record.plan.change),
        mode: plan_words::mode(kept.record.plan.mode),
        ended: plan_words::status(kept.record.status).to_owned(),
    });
    of(told.collect(), changes.collect(), outcome.replayed.policy().relapse_window)
}

fn of(incidents: Vec<Told>, changes: Vec<Changed>, relapse: Duration) -> Side {
    let lives = incidents.iter().map(|one| (one.key.as_str(), one.opened_at.0, one.closed_at.map(|at| at.0)));
    let flaps = beside::flaps(lives, relapse);
    let detected: Vec<f64> = incidents.iter().filter_map(|one| one.detected_after_s).collect();
    let many = u32::try_from(detected.len()).unwrap_or(u32::MAX);
    let mean = (many > 0).then(|| (detected.iter().sum::<f64>() / f64::from(many) * 10.0).round() / 10.0);
    Side {
        flaps,
        detected_after_mean_s: mean,
        detected_after_max_s: detected.iter().copied().reduce(f64::max),
        detected: detected.len(),
        as_stored: incidents.iter().filter(|one| one.as_stored).count(),
        incidents,
        changes,
    }
}
