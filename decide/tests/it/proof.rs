//! Proof of life of a node: what it adds to "alive", and what a vantage is worth that shows a false one.

use crate::rig::*;
use parallax_decide::call::Call;
use parallax_decide::fold::Why;
use parallax_decide::observation::{Connection, Fact, Outcome, Particulars, Proof, Target};
use parallax_decide::topology::Topology;
use parallax_decide::verdict::{NodeVerdict, VantageVerdict};
use std::time::Duration;

/// What a vantage says of the native node.
#[derive(Clone, Copy)]
enum Word {
    Dead,
    Alive(Option<Proof>),
    Nothing,
}

const PROVEN: Word = Word::Alive(Some(Proof::Valid));
const UNPROVEN: Word = Word::Alive(Some(Proof::Absent));
const FALSE: Word = Word::Alive(Some(Proof::Invalid));

fn rig(proof: bool) -> Rig {
    let mut rig = Rig::new(World::well());
    for node in rig.topology.nodes.values_mut() {
        node.proof = proof;
    }
    rig
}

fn second(rig: &mut Rig, words: [Word; 3]) {
    rig.now = rig.now.plus(Duration::from_secs(1));
    for (vantage, word) in VANTAGES.into_iter().zip(words) {
        let (outcome, proof) = match word {
            Word::Nothing => continue,
            Word::Dead => (Outcome::Silent, None),
            Word::Alive(proof) => (Outcome::TlsOk, proof),
        };
        rig.controls(vantage);
        rig.particulars = Particulars { proof, ..Particulars::default() };
        let connected = u16::from(outcome == Outcome::TlsOk);
        let fact = Connection {
            target: Target::Node(n("fi")),
            address: n(FI),
            port: 443,
            outcome,
            attempts: 1,
            attempts_connected: connected,
        };
        rig.observe(vantage, Fact::Connection(fact));
        rig.particulars = Particulars::default();
        rig.controls(vantage);
    }
}

fn seconds(rig: &mut Rig, count: u32, words: [Word; 3]) {
    for _ in 0..count {
        second(rig, words);
    }
}

fn node(rig: &Rig) -> NodeVerdict {
    rig.judge().nodes[&n("fi")].verdict
}

#[test]
fn only_a_proven_alive_vetoes_where_the_node_proves_its_life() {
    use NodeVerdict::{DeadEverywhere, InsufficientEvidence, Ok, UnroutableFromSome};
    for (proof, words, verdict) in [
        (true, [PROVEN, Word::Dead, Word::Dead], UnroutableFromSome),
        (true, [UNPROVEN, Word::Dead, Word::Dead], DeadEverywhere),
        (true, [Word::Alive(None), Word::Dead, Word::Dead], DeadEverywhere),
        // One accuser overrules nobody.
        (true, [UNPROVEN, UNPROVEN, Word::Dead], UnroutableFromSome),
        (true, [UNPROVEN, UNPROVEN, UNPROVEN], Ok),
        (true, [Word::Nothing, Word::Nothing, Word::Dead], InsufficientEvidence),
        // Without proof of life one lie is enough for a veto.
        (false, [Word::Alive(None), Word::Dead, Word::Dead], UnroutableFromSome),
    ] {
        let mut rig = rig(proof);
        seconds(&mut rig, 5, words);
        assert_eq!(node(&rig), verdict, "proof {proof}");
    }
}

#[test]
fn a_false_proof_makes_the_vantage_suspect_for_as_long_as_it_goes_on() {
    let mut rig = rig(true);
    seconds(&mut rig, 5, [FALSE, Word::Dead, Word::Dead]);
    let judged = rig.judge().vantages[&n(BRANCH)].clone();
    assert_eq!((judged.verdict, judged.suspected), (VantageVerdict::Suspect, Some(Why::ProofInvalid)));
    assert_eq!(judged.evidence.len(), 1, "the observation that shows it");
    assert!(!judged.may_accuse() && !judged.may_prove());
    assert_eq!(node(&rig), NodeVerdict::DeadEverywhere);
    rig.decide();
    let finding = rig.findings.iter().find(|one| one.subject.vantage() == Some(&n(BRANCH))).unwrap();
    assert_eq!(finding.kind, "vantage_suspect");
    assert!(finding.calls.contains(&Call::Security) && finding.calls.contains(&Call::Exclude { vantage: n(BRANCH) }));
    // It accuses nobody either.
    seconds(&mut rig, 12, [Word::Dead, PROVEN, PROVEN]);
    assert_eq!((node(&rig), rig.judge().vantages[&n(BRANCH)].verdict), (NodeVerdict::Ok, VantageVerdict::Suspect));
    seconds(&mut rig, 2, [PROVEN, PROVEN, PROVEN]);
    assert_eq!(rig.judge().vantages[&n(BRANCH)].verdict, VantageVerdict::Ok);
}

#[test]
fn two_machines_under_one_identity_are_heard_by_nobody() {
    let mut rig = rig(false);
    seconds(&mut rig, 5, [Word::Dead, Word::Alive(None), Word::Alive(None)]);
    assert_eq!(node(&rig), NodeVerdict::UnroutableFromSome);
    let (topology, at): (Topology, _) = (rig.topology.clone(), rig.now);
    rig.fold.note_clone(&topology, &n(BRANCH), at);
    rig.fold.note_clone(&topology, &n("nowhere"), at);
    let judged = rig.judge().vantages[&n(BRANCH)].clone();
    assert_eq!((judged.verdict, judged.suspected), (VantageVerdict::Suspect, Some(Why::Cloned)));
    assert_eq!(node(&rig), NodeVerdict::Ok);
}

#[test]
fn a_proof_vetoes_for_two_rounds_after_its_vantage_fell_silent() {
    let mut rig = rig(true);
    seconds(&mut rig, 5, [PROVEN, Word::Dead, Word::Dead]);
    let policy = rig.topology.policy.clone();
    let lasts = policy.silent_after + policy.node_every * 2;
    let lasts = u32::try_from(lasts.as_secs()).unwrap();
    for second in 1..=lasts {
        seconds(&mut rig, 1, [Word::Nothing, Word::Dead, Word::Dead]);
        assert_ne!(node(&rig), NodeVerdict::DeadEverywhere, "second {second}");
    }
    let judged = rig.judge();
    assert_eq!(judged.vantages[&n(BRANCH)].verdict, VantageVerdict::Silent);
    assert_eq!(judged.nodes[&n("fi")].held_at, [n(BRANCH)]);
    seconds(&mut rig, 1, [Word::Nothing, Word::Dead, Word::Dead]);
    assert_eq!(node(&rig), NodeVerdict::DeadEverywhere);
}

#[test]
fn losing_a_witness_without_a_proof_is_not_held() {
    let mut rig = rig(true);
    seconds(&mut rig, 5, [UNPROVEN, Word::Dead, Word::Dead]);
    seconds(&mut rig, 13, [Word::Nothing, Word::Dead, Word::Dead]);
    assert_eq!(node(&rig), NodeVerdict::DeadEverywhere);
    assert!(rig.judge().nodes[&n("fi")].held_at.is_empty());
}
