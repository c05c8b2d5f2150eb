//! How the program ends when it does not begin: exit code, error code, and a document for programs.

#![expect(clippy::unwrap_used, reason = "a panic is how a test says no, in its helpers too")]

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Exit code, standard output and standard error.
fn ended(arguments: &[&str], variables: &[(&str, &str)]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_parallax-agent"));
    command.args(arguments).env_clear().envs(variables.iter().copied());
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn code_of(document: &str) -> String {
    let document: Value = serde_json::from_str(document).unwrap();
    assert_eq!(document["schema"], 1);
    document["error"]["code"].as_str().unwrap().to_owned()
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_owned()
}

#[test]
fn wrong_usage_and_configuration_end_with_2_a_code_and_a_document_where_asked() {
    let folder = tempfile::tempdir().unwrap();
    let (state, local) = (path(folder.path(), "state"), path(folder.path(), "local.yaml"));
    std::fs::write(&local, "version: 1\nalow: {}\n").unwrap();
    let (exit, out, told) = ended(&["status", "--sate", &state, "--json"], &[]);
    assert_eq!((exit, code_of(&out).as_str()), (2, "E0400"));
    assert!(told.starts_with("error[E0400]: ") && told.contains("--state"), "{told}");
    assert_eq!(ended(&["status", "--sate", &state], &[]).1, "", "no document unless asked");
    let (exit, out, told) = ended(&["probe", "example.com", "--local", &local, "--json"], &[]);
    assert_eq!((exit, code_of(&out).as_str()), (2, "E0433"));
    assert!(told.contains("error[E0433]") && told.contains("alow"), "{told}");
    let (exit, _, told) = ended(&["run", "--state", &state, "--local", &local], &[]);
    assert_eq!(exit, 2);
    assert!(told.contains("E0433"), "{told}");
    std::fs::write(&local, "version: 1\n").unwrap();
    let (exit, _, told) = ended(&["run", "--state", &state, "--local", &local, "--proxy", "socks5://a:1"], &[]);
    assert_eq!((exit, told.contains("E0436")), (2, true), "{told}");
    let many = (1..99).map(|port| format!("a:{port}")).collect::<Vec<_>>().join(",");
    let (exit, _, told) = ended(&["run", "--state", &state, "--local", &local, "--coordinator", &many], &[]);
    assert_eq!((exit, told.contains("E0438")), (2, true), "{told}");
    for asked in ["--help", "--version"] {
        assert_eq!(ended(&[asked], &[]).0, 0);
    }
}

#[test]
fn a_misspelt_variable_is_refused_whatever_is_asked() {
    let misspelt = [("PARALLAX_AGENT_COORDINATER", "secret.example:8443")];
    let folder = tempfile::tempdir().unwrap();
    let state = path(folder.path(), "state");
    for arguments in [&["run", "--state", &state][..], &["status", "--state", &state, "--json"]] {
        let (exit, out, told) = ended(arguments, &misspelt);
        assert_eq!(exit, 2);
        assert!(told.contains("E0440") && told.contains("did you mean PARALLAX_AGENT_COORDINATOR?"), "{told}");
        assert!(!told.contains("secret.example"), "values are not repeated: {told}");
        assert_eq!(out.is_empty(), arguments.len() == 3, "{out}");
    }
    assert!(!folder.path().join("state").exists(), "nothing was begun");
}

#[test]
fn a_machine_that_has_not_joined_has_a_status_and_it_is_not_well() {
    let folder = tempfile::tempdir().unwrap();
    let state = path(folder.path(), "state");
    let (exit, out, told) = ended(&["status", "--state", &state, "--json"], &[]);
    assert_eq!(exit, 3);
    let document: Value = serde_json::from_str(&out).unwrap();
    assert!(document["identity"]["trouble"].is_string() && document["error"]["code"] == "E0443", "{out}");
    assert!(told.contains("error[E0443]") && told.contains("parallax-agent join"), "{told}");
    std::fs::create_dir_all(folder.path().join("state/identity")).unwrap();
    std::fs::write(folder.path().join("state/identity/key.pem"), "rubbish").unwrap();
    assert_eq!(ended(&["status", "--state", &state], &[]).0, 1, "half of an identity is a failure");
}

#[test]
fn a_state_folder_that_is_taken_or_cannot_be_made_ends_with_1_and_a_code() {
    let folder = tempfile::tempdir().unwrap();
    let (state, local) = (path(folder.path(), "state"), path(folder.path(), "local.yaml"));
    std::fs::write(&local, "version: 1\n").unwrap();
    std::fs::create_dir(&state).unwrap();
    let lock = std::fs::File::create(Path::new(&state).join("lock")).unwrap();
    lock.lock().unwrap();
    let (exit, _, told) = ended(&["run", "--state", &state, "--local", &local], &[]);
    assert_eq!((exit, told.contains("E0442")), (1, true), "{told}");
    // A file where a folder should be stops root too.
    let under_a_file = path(Path::new(&local), "state");
    let (exit, _, told) = ended(&["run", "--state", &under_a_file, "--local", &local], &[]);
    assert_eq!((exit, told.contains("E0431")), (1, true), "{told}");
}
