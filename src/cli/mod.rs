//! The command line: one verb a file. Only this room prints, and only it uses anyhow.

mod accept;
mod assay;
mod bench;
mod check;
mod clean;
#[cfg(feature = "cuda")]
mod compile;
#[cfg(feature = "cuda")]
mod devices;
mod diff;
mod exhaust;
mod external;
mod helper;
mod history;
mod judge_times;
mod list;
mod merge;
mod outputs;
mod plan;
mod power;
mod progress;
#[cfg(feature = "cuda")]
mod record;
mod report;
mod run;
mod serve;
mod stale;
mod submit;
mod table;
mod verbs;
mod worker;

use crate::fault::card::wrapped;
use anstyle::AnsiColor;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Exit statuses, the same for every verb.
pub mod status {
    /// Everything passed.
    pub const PASSED: u8 = 0;
    /// A verdict failed, or a case ended in an error.
    pub const FAILED: u8 = 1;
    /// Usage or input.
    pub const USAGE: u8 = 2;
    /// Nothing failed, but a case that is no edge case had no power, one is suspect, or no case was judged.
    pub const NO_POWER: u8 = 3;
    /// Nothing failed, but the time ran out before every case was run.
    pub const INCOMPLETE: u8 = 4;
    /// Stopped by Ctrl-C.
    pub const INTERRUPTED: u8 = 130;
    /// Whoever read the output went away.
    pub const CLOSED: u8 = 141;
}

/// Assays quantized GPU kernels to the last bit.
///
/// A sweep (data/sweeps/*.toml) expands to cases. Each case is computed four times: exactly on the unquantized values, in
/// f64 on the bits the kernel saw, by the device model, and by the kernel. This separates what the
/// format costs from what the kernel costs. The kernel's share is judged by a bound derived from its arithmetic.
#[derive(Parser)]
#[command(name = "qassay", version, max_term_width = 110)]
#[command(after_help = "Exit status: 0 all passed; 1 a verdict failed; 2 usage or input; 3 nothing failed but a case had no \
power, is suspect, or none was judged; 4 the time budget ended before every case was run; 130 stopped by Ctrl-C.\n\nFirst steps:\n  qassay run smoke          a few seconds\n  qassay run                the \
standard sweep, with a report\n  qassay list recipes       what can be named in a sweep")]
struct Cli {
    /// Show what the library logs (also QASSAY_LOG=debug).
    // After the options of a verb, before its help.
    #[arg(long, short, global = true, action = clap::ArgAction::Count, display_order = 900)]
    verbose: u8,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Run(run::Args),
    Assay(assay::Args),
    Report(report::Args),
    Check(check::Args),
    Accept(accept::Args),
    Diff(diff::Args),
    History(history::Args),
    Plan(plan::Args),
    Power(power::Args),
    Merge(merge::Args),
    Submit(submit::Args),
    Status(progress::Args),
    #[cfg(feature = "cuda")]
    Record(record::Args),
    Stale(stale::Args),
    List(list::Args),
    Exhaust(exhaust::Args),
    Bench(bench::Args),
    Helper(helper::Args),
    #[command(hide = true)]
    Worker(worker::Args),
    #[command(hide = true)]
    Serve(serve::Args),
    #[cfg(feature = "cuda")]
    Devices(devices::Args),
    #[cfg(feature = "cuda")]
    Compile(compile::Args),
    /// Print a shell's completion script: verbs, options, and the names of sweeps, scenarios, recipes and faults
    #[command(after_help = "Example:\n  source <(qassay completions bash)")]
    Completions {
        shell: clap_complete::Shell,
    },
}

/// Parses the command line, runs the verb, and gives the exit status.
pub fn main() -> u8 {
    let parsed = verbs::grouped(Cli::command()).try_get_matches().and_then(|m| Cli::from_arg_matches(&m));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(e) if e.use_stderr() => {
            // The library's words for a number with a letter in it.
            let text = e.render().ansi().to_string().replace("invalid digit found in string", "expected a whole number");
            complain(&text);
            return status::USAGE;
        }
        Err(e) => {
            written(e.print());
            return status::PASSED;
        }
    };
    log(cli.verbose);
    let result = match cli.verb {
        Verb::Run(args) => run::run(args),
        Verb::Assay(args) => assay::run(args),
        Verb::Report(args) => report::run(args),
        Verb::Check(args) => check::run(args),
        Verb::Accept(args) => accept::run(args),
        Verb::Diff(args) => diff::run(args),
        Verb::History(args) => history::run(args),
        Verb::Plan(args) => plan::run(args),
        Verb::Power(args) => power::run(args),
        Verb::Merge(args) => merge::run(args),
        Verb::Submit(args) => submit::run(args),
        Verb::Status(args) => progress::run(args),
        #[cfg(feature = "cuda")]
        Verb::Record(args) => record::run(args),
        Verb::Stale(args) => stale::run(args),
        Verb::List(args) => list::run(args),
        Verb::Exhaust(args) => exhaust::run(args),
        Verb::Bench(args) => bench::run(args),
        Verb::Helper(args) => helper::run(args),
        Verb::Worker(args) => worker::run(args),
        Verb::Serve(args) => serve::run(args),
        #[cfg(feature = "cuda")]
        Verb::Devices(args) => devices::run(args),
        #[cfg(feature = "cuda")]
        Verb::Compile(args) => compile::run(args),
        Verb::Completions { shell } => {
            let mut script = Vec::new();
            verbs::named(Cli::command()).map(|mut command| {
                clap_complete::generate(shell, &mut command, "qassay", &mut script);
                print(&String::from_utf8_lossy(&script));
                status::PASSED
            })
        }
    };
    result.unwrap_or_else(|e| {
        complain(&for_terminal(&format!("qassay: {e:#}")));
        status::USAGE
    })
}

fn log(verbose: u8) {
    let level = ["warn", "info", "debug", "trace"][usize::from(verbose).min(3)];
    let given = std::env::var("QASSAY_LOG").ok().and_then(|text| text.parse::<Targets>().ok());
    let filter = given.or_else(|| level.parse().ok()).unwrap_or_default();
    let colours = anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never;
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(colours).without_time();
    tracing_subscriber::registry().with(lines).with(filter).init();
}

/// Characters a line of what people read: the terminal's, where there is one.
fn width() -> usize {
    let wide = terminal_size::terminal_size().map(|(w, _)| usize::from(w.0));
    wide.map_or(crate::bundle::answer::WIDTH, |w| w.clamp(60, 140))
}

/// Verdicts at the beginning of a line, and their colours.
const PAINTED: [(&str, AnsiColor); 5] = [
    ("PASS", AnsiColor::Green),
    ("SUSPECT", AnsiColor::Yellow),
    ("FAIL", AnsiColor::Red),
    ("ERROR", AnsiColor::Red),
    ("NO_POWER", AnsiColor::Magenta),
];

/// The text with its verdicts in colour: to be written through `anstream`, which takes colours out where they cannot be shown or are not
/// wanted (a pipe, `NO_COLOR`).
fn paint(text: &str) -> String {
    let line = |line: &str| {
        let found = PAINTED.iter().find(|(word, _)| line.strip_prefix(word).is_some_and(|rest| rest.starts_with([' ', '\n'])));
        found.map_or(line.to_string(), |(word, colour)| {
            let style = colour.on_default().bold();
            format!("{style}{word}{style:#}{}", &line[word.len()..])
        })
    };
    text.split_inclusive('\n').map(line).collect()
}

/// Writes to standard output. Where that fails the program ends.
fn print(text: &str) {
    use std::io::Write;
    let mut out = anstream::stdout().lock();
    written(out.write_all(paint(text).as_bytes()).and_then(|()| out.flush()));
}

/// Ends the program where standard output could not be written: what nobody was told is not a pass. A reader that went away (`| head`) ends
/// it without a word, with the status that a shell gives to a closed pipe.
fn written(result: std::io::Result<()>) {
    let Err(e) = result else { return };
    if e.kind() == std::io::ErrorKind::BrokenPipe {
        std::process::exit(i32::from(status::CLOSED));
    }
    complain(&format!("qassay: standard output: {e}; make room, or send the output elsewhere\n"));
    std::process::exit(i32::from(status::USAGE));
}

/// What is complained of, in lines that end between words where standard error is a terminal; as it is in a pipe.
fn for_terminal(text: &str) -> String {
    let wide = terminal_size::terminal_size_of(std::io::stderr()).map_or(usize::MAX, |(w, _)| usize::from(w.0).max(40));
    text.lines().flat_map(|line| wrapped(line, wide)).map(|line| line + "\n").collect()
}

/// Writes to standard error. Nobody can be told where that fails.
fn complain(text: &str) {
    use std::io::Write;
    let _ = anstream::stderr().lock().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// Names that clash and arguments that are not there, in every verb: clap says so only when it is asked.
    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
