//! `kill -9` at any moment: what was appended is there.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use super::*;

/// The test that is the child's part; it does nothing unless this names a folder.
const CHILD: &str = "PARALLAX_SPOOL_CHILD";

/// Rounds in a usual run, and when a soak is asked for.
const ROUNDS: u64 = 25;
const ROUNDS_SOAK: u64 = 1000;

/// The child: appends numbered rows and says each number when it is appended; now and then it makes
/// things durable, sends and takes acknowledgements, as the agent does.
#[test]
fn child_appends_until_it_is_killed() {
    use std::io::Write as _;

    let Ok(root) = std::env::var(CHILD) else { return };
    let boot = std::env::var("PARALLAX_SPOOL_BOOT").unwrap().parse().unwrap();
    let mut spool = Spool::open(PathBuf::from(root), BootId(boot), Limits::default(), 0);
    let mut out = std::io::stdout().lock();
    for round in 1..u64::MAX {
        let lane = if round % 3 == 0 { Lane::Urgent } else { Lane::Routine };
        let mut bytes = spool.next_sequence(lane).to_le_bytes().to_vec();
        bytes.resize(8 + (round % 700) as usize, 7);
        let sequence = spool.append(lane, round, true, &bytes);
        if let Some(why) = spool.trouble() {
            // What is promised is promised of a disk that works.
            writeln!(out, "trouble {why}").unwrap();
        }
        writeln!(out, "row {} {sequence}", lane.word()).unwrap();
        if round % 97 == 0 {
            spool.sync();
        }
        if round % 151 == 0
            && let Some(batch) = spool.next_batch_of(lane, 20, BYTES).unwrap()
            && batch.boot.0 == boot
        {
            let last = batch.rows.last().unwrap().sequence;
            // Said before: the coordinator has it, whether the answer arrives or not.
            writeln!(out, "stored {} {last}", lane.word()).unwrap();
            spool.acked(batch.boot, lane, last);
        }
    }
}

/// What a child said before it was killed.
#[derive(Default)]
struct Said {
    rows: Lanes<u64>,
    stored: Lanes<u64>,
}

fn run_child(root: &Path, boot: u128, lines: usize) -> Said {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "spool::tests::killed::child_appends_until_it_is_killed"])
        .env(CHILD, root)
        .env("PARALLAX_SPOOL_BOOT", boot.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut said = Said::default();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut take = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [what @ ("row" | "stored"), lane, number] = words[..]
            && line.ends_with('\n')
        {
            let lane = Lane::ALL.into_iter().find(|one| one.word() == lane).unwrap();
            let place = if what == "row" { &mut said.rows } else { &mut said.stored };
            *place.of_mut(lane) = number.parse().unwrap();
        }
    };
    let mut line = String::new();
    for _ in 0..lines {
        line.clear();
        assert!(out.read_line(&mut line).unwrap() > 0, "the child ended by itself");
        assert!(!line.starts_with("trouble"), "the disk of this machine does not work: {line}");
        take(&line);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // What it said before it died and was not read yet.
    loop {
        line.clear();
        if out.read_line(&mut line).unwrap_or(0) == 0 {
            break;
        }
        take(&line);
    }
    said
}

#[test]
fn kill_9_at_any_moment_loses_nothing_that_was_appended() {
    let soak = std::env::var_os("PARALLAX_SOAK").is_some();
    let seed: u64 = std::env::var("PARALLAX_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_130);
    let mut random = seed;
    let root = tempfile::tempdir().unwrap();
    let mut said = std::collections::BTreeMap::new();
    let rounds = if soak { ROUNDS_SOAK } else { ROUNDS };
    let mut boot = 0;
    for round in 0..rounds {
        boot += 1;
        // A 64-bit linear congruential generator (Knuth, MMIX).
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let lines = 5 + (random >> 33) as usize % 3000;
        said.insert(boot, run_child(root.path(), boot, lines));
        // After a few kills everything is looked at: what several killed boots left, too.
        if round % 5 != 4 && round + 1 != rounds {
            continue;
        }
        boot += 1;
        let mut spool = Spool::open(root.path().to_owned(), BootId(boot), Limits::default(), 0);
        let mut got: std::collections::BTreeMap<(u128, Lane), Vec<u64>> = std::collections::BTreeMap::new();
        while let Some(batch) = next(&mut spool, 500, BYTES).unwrap() {
            for row in &batch.rows {
                let bytes = match &row.content {
                    Content::Observation(bytes) => bytes,
                    // A record of an earlier look: of a row that was torn.
                    Content::Loss(loss) => {
                        assert_eq!(loss.reason, LossReason::Damaged, "seed {seed}, round {round}: {loss:?}");
                        assert_eq!(loss.count, 1, "seed {seed}, round {round}: {loss:?}");
                        continue;
                    }
                };
                assert_eq!(u64::from_le_bytes(*bytes.first_chunk().unwrap()), row.sequence);
                got.entry((batch.boot.0, batch.lane)).or_default().push(row.sequence);
            }
            spool.acked(batch.boot, batch.lane, batch.rows.last().unwrap().sequence);
        }
        let kills = said.len() as u64;
        for (boot, said) in std::mem::take(&mut said) {
            for lane in Lane::ALL {
                let numbers = got.remove(&(boot, lane)).unwrap_or_default();
                let (made, stored) = (*said.rows.of(lane), *said.stored.of(lane));
                let first = numbers.first().copied().unwrap_or(stored + 1);
                let context =
                    format!("seed {seed}, round {round}, boot {boot}, {lane}: {first}.., said {made}, stored {stored}");
                assert!(first <= stored + 1, "{context}");
                let last = numbers.last().copied().unwrap_or(stored);
                assert!(last >= made, "{context}, only to {last}");
                // In order, without a hole, none twice.
                assert!(numbers.iter().copied().eq(first..=last) || numbers.is_empty(), "{context}");
            }
        }
        assert!(got.is_empty(), "rows nobody appended: {got:?}");
        // A kill may tear the one row that was being written: it was never said, and counts as lost.
        assert!(spool.lost() <= kills, "seed {seed}, round {round}: {} lost", spool.lost());
    }
}
