//! `./x eval FILE...`: labelled cases through `decide`, graded.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use parallax_eval::{case, grade, table};

/// Runs labelled cases through the judging of live detection and grades what comes of them.
///
/// Ends with 0 when all is right, 1 when something is wrong, 2 when a file cannot be read.
#[derive(Debug, Parser)]
#[command(name = "eval")]
struct Arguments {
    /// One JSON object a case, then one with the sums.
    #[arg(long)]
    json: bool,
    /// Files of cases, as scenarios/cases.yaml.
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok((text, right)) => {
            // A reader that went away wants no more.
            let _ = std::io::stdout().write_all(text.as_bytes());
            if right { ExitCode::SUCCESS } else { ExitCode::from(1) }
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> Result<(String, bool), Box<dyn std::error::Error>> {
    let mut cases = Vec::new();
    for file in &arguments.files {
        cases.extend(case::read(file)?);
    }
    let grades = cases.iter().map(grade::grade).collect::<Result<Vec<_>, _>>()?;
    let right = grades.iter().all(|grade| grade.ok);
    if !arguments.json {
        return Ok((table::text(&cases, &grades), right));
    }
    let mut lines = grades.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
    lines.push(serde_json::to_string(&table::summary(&cases, &grades))?);
    Ok((lines.join("\n") + "\n", right))
}
