//! The policy of a rehearsal: a whole configuration, of which only the policy is taken, or a file with nothing but
//! `policy:` and `policy_overrides:`.

use std::path::Path;

use parallax_decide::topology::Policy;
use serde::Deserialize;
use serde_saphyr::Spanned;

use super::error::{self, Fault, Faults};
use super::file::PolicyName;
use super::policy::{self, Overrides};
use super::{Config, read_file};

/// A file with nothing but a policy.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyFile {
    #[serde(default)]
    policy: PolicyName,
    #[serde(default)]
    policy_overrides: Option<Spanned<Overrides>>,
}

/// Reads it.
///
/// # Errors
/// Every fault of the file with its place.
pub fn load(path: &Path) -> Result<Policy, Faults> {
    let file = path.display().to_string();
    let text = read_file(path)?;
    // Each whole configuration says its version, and a policy alone has none.
    if text.lines().any(|line| line.starts_with("version:")) {
        return Config::parse(&text, &file).map(|config| config.topology.policy);
    }
    let faults = |fault: Fault| Faults { file: file.clone(), faults: vec![fault], text: text.clone() };
    let written: PolicyFile = serde_saphyr::from_str(&text).map_err(|fault| faults(error::of_reader(&fault, &text)))?;
    let (mut policy, mut schedule) = (policy::policy(written.policy), policy::schedule(written.policy));
    if let Some(overrides) = &written.policy_overrides {
        let place = overrides.referenced;
        let at = |message: String| Fault { line: place.line(), column: place.column(), message };
        overrides.value.apply(&mut policy, &mut schedule).map_err(|fault| faults(at(fault)))?;
        let found: Vec<Fault> = policy::faults(&policy, &schedule).into_iter().map(at).collect();
        if !found.is_empty() {
            return Err(Faults { file: file.clone(), faults: found, text: text.clone() });
        }
    }
    Ok(policy)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn read(text: &str) -> Result<Policy, Faults> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        load(file.path())
    }

    #[test]
    fn a_policy_alone_and_that_of_a_whole_configuration_are_read_and_faults_have_a_place() {
        let alone = read("policy: fast\npolicy_overrides: { dwell_s: 40 }\n").unwrap();
        assert_eq!(alone.dwell, Duration::from_secs(40));
        let whole = read(super::super::builtin::EXAMPLE).unwrap();
        assert_eq!(whole, Config::parse(super::super::builtin::EXAMPLE, "x").unwrap().topology.policy);
        for (text, said) in [
            ("policy: fats\n", "unknown value `fats`, did you mean `fast`?"),
            ("policy: fast\ndwell_s: 4\n", "unknown key `dwell_s`"),
            ("policy: fast\npolicy_overrides: { k_min: 1 }\n", "k_min has a floor of 3"),
        ] {
            let faults = read(text).unwrap_err();
            assert!(faults.faults[0].message.contains(said) && faults.faults[0].line > 0, "{faults:?}");
        }
        assert!(load(Path::new("/nonexistent")).unwrap_err().faults[0].message.contains("cannot be read"));
    }
}
