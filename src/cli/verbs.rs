//! The verbs in groups, and the names that a shell completes.

use super::table;
use anyhow::Result;
use clap::builder::PossibleValuesParser;
use clap::{Command, builder::StyledStr};

/// What people come to do, and the verbs for it. A verb that is not built in is left out.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Check a kernel", &["run", "assay", "stale", "exhaust", "power"]),
    ("Explore", &["list", "report", "diff", "history", "helper"]),
    ("CI", &["check", "accept"]),
    ("Cluster", &["plan", "submit", "status", "merge"]),
    ("GPU", &["devices", "compile", "bench", "record"]),
    ("Shell", &["completions", "help"]),
];

/// Arguments that take a name, by verb and id, and where the names come from.
const NAMED: [(&str, &str, Names); 12] = [
    ("run", "sweep", Names::Sweeps),
    ("check", "sweep", Names::Sweeps),
    ("plan", "sweep", Names::Sweeps),
    ("power", "sweep", Names::Sweeps),
    ("submit", "sweep", Names::Sweeps),
    ("history", "sweep", Names::Sweeps),
    ("stale", "scenario", Names::Scenarios),
    ("check", "inject", Names::Faults),
    ("list", "filter", Names::FaultsAndRecipes),
    ("run", "op", Names::Ops),
    ("bench", "recipe", Names::Recipes),
    ("bench", "op", Names::Ops),
];

#[derive(Clone, Copy)]
enum Names {
    Sweeps,
    Scenarios,
    Faults,
    Recipes,
    FaultsAndRecipes,
    Ops,
}

impl Names {
    fn all(self) -> Result<Vec<String>> {
        let faults = || crate::fault::faults().map(|f| f.name());
        let recipes = || crate::recipe::RECIPES.iter().map(|r| r.name.to_string());
        Ok(match self {
            Names::Sweeps => crate::data::names("sweeps", "toml")?,
            Names::Scenarios => crate::data::names("scenarios", "toml")?,
            Names::Faults => faults().collect(),
            Names::Recipes => recipes().collect(),
            Names::FaultsAndRecipes => faults().chain(recipes()).collect(),
            Names::Ops => crate::op::OPS.iter().map(|o| o.name.to_string()).collect(),
        })
    }
}

/// The command whose `--help` has the verbs in groups.
pub fn grouped(command: Command) -> Command {
    let width = terminal_size::terminal_size().map_or(100, |(w, _)| usize::from(w.0).clamp(40, 110));
    let mut text = String::new();
    for (name, verbs) in GROUPS {
        let rows = verbs.iter().filter_map(|v| Some(vec![format!("  {v}"), about(&command, v)?]));
        let rows: Vec<Vec<String>> = rows.collect();
        if !rows.is_empty() {
            // The header of a table of its own would say nothing.
            let table = table::within(Some(width), &["", ""], &rows);
            text += &format!("{name}:\n{}\n", table.split_once('\n').map_or("", |t| t.1));
        }
    }
    let template = format!("{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{text}Options:\n{{options}}{{after-help}}");
    command.help_template(StyledStr::from(template))
}

/// The first sentence of what a verb does; `None` for one that is not built in.
fn about(command: &Command, verb: &str) -> Option<String> {
    if verb == "help" {
        return Some("Print the help of a verb: `qassay help run`, or `qassay run --help`".into());
    }
    let about = command.find_subcommand(verb)?.get_about()?.to_string();
    let end = about.find(". ").or_else(|| about.find(": ").filter(|_| about.len() > 110));
    Some(about[..end.unwrap_or(about.len())].trim_end_matches('.').to_string())
}

/// The command as a completion script is made of it: with the names that stand in a registry or in the data folder as values. Errors:
/// the data folder cannot be read.
pub fn named(mut command: Command) -> Result<Command> {
    for (verb, id, names) in NAMED {
        let all = names.all()?;
        let there = |c: &Command| c.get_arguments().any(|a| a.get_id() == id);
        if command.find_subcommand(verb).is_some_and(there) {
            let values = PossibleValuesParser::new(all);
            // `mut_arg` would move the argument behind the others.
            let with = |a: clap::Arg| if a.get_id() == id { a.value_parser(values.clone()) } else { a };
            command = command.mut_subcommand(verb, |c| c.mut_args(with));
        }
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn every_verb_stands_in_one_group() {
        let command = super::super::Cli::command();
        let shown = command.get_subcommands().filter(|c| !c.is_hide_set()).map(|c| c.get_name().to_string());
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|g| g.1).copied().collect();
        for verb in shown {
            assert_eq!(grouped.iter().filter(|g| **g == verb).count(), 1, "{verb}");
        }
    }

    #[test]
    fn what_takes_a_name_completes_it() {
        let command = named(super::super::Cli::command()).unwrap();
        for (verb, id, names) in NAMED {
            let verb = command.find_subcommand(verb).unwrap();
            let argument =
                verb.get_arguments().find(|a| a.get_id() == id).unwrap_or_else(|| panic!("{} has no {id}", verb.get_name()));
            assert_eq!(argument.get_possible_values().len(), names.all().unwrap().len(), "{} {id}", verb.get_name());
        }
        let mut script = Vec::new();
        clap_complete::generate(
            clap_complete::Shell::Bash,
            &mut named(super::super::Cli::command()).unwrap(),
            "qassay",
            &mut script,
        );
        let script = String::from_utf8(script).unwrap();
        assert!(script.contains(" heldout ") && script.contains("scale_shared:b.pairs") && script.contains("te_block_1x128"));
    }
}
