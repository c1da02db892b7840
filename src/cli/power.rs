//! `qassay power`: what a pass is worth, measured with wrong kernels.

use super::{clean, judge_times, print, status};
use crate::compare::Verdict;
use crate::fault::power;
use crate::fault::tally::{self, Tallies};
use crate::parallel;
use crate::report::power as figures;
use crate::run::plan::Selection;
use crate::run::provenance;
use crate::sweep::bar::counting;
use crate::sweep::{Case, build};
use anyhow::{Context, Result, bail};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Inject every known fault into right kernels, and report which checks catch it: the device model, the bound, the gates of other
/// projects.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  qassay power --sample 200\n  qassay power smoke --diagnose\n  qassay power --clean 20000")]
pub struct Args {
    /// Sweeps by name or path; `standard` where none is named.
    #[arg(value_name = "SWEEP")]
    sweep: Vec<String>,
    /// Only cases whose name has these whole words; `te_block*` also matches longer words. All must match.
    #[arg(long, value_name = "TEXT")]
    filter: Vec<String>,
    /// At most about this many cases, the same ones every time: a share of each table of the sweep, at least one.
    #[arg(long, value_name = "N")]
    sample: Option<usize>,
    /// Added to every case's seed.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Also diagnose every fault that is caught, and count those that are named rightly.
    #[arg(long)]
    diagnose: bool,
    /// Judge N right results instead, and count the alarms. They come from numpy kernels in every order of summation, style of scaling and kind
    /// of data; or, where a sweep is named, from its cases over fresh seeds.
    #[arg(long, value_name = "N")]
    clean: Option<usize>,
    /// Draw N faults from a grammar instead (effect, region, parameters, formats, shapes), replay each in plain loops, and count
    /// those caught and, with --diagnose, named. Every fourth question has two faults at once.
    #[arg(long, value_name = "N")]
    grammar: Option<usize>,
    /// The folder for power.html, power.csv, summary.md and the figures. --clean with a sweep writes clean.csv there, which the page shows too.
    #[arg(long, value_name = "DIR", default_value = "reports/power")]
    out: PathBuf,
}

pub fn run(args: Args) -> Result<u8> {
    if let (Some(n), true) = (args.clean, args.sweep.is_empty()) {
        return clean::generated(n, args.seed);
    }
    let named = if args.sweep.is_empty() { vec!["standard".to_string()] } else { args.sweep.clone() };
    let selection = |seed| Selection { sweeps: named.clone(), filter: args.filter.clone(), seed, ..Selection::default() };
    if let Some(n) = args.clean {
        return clean::cases(n, args.seed, &selection, &args.out);
    }
    if let Some(n) = args.grammar {
        return grammar(n, args.seed, &args.out);
    }
    let sweeps = selection(args.seed).load()?;
    if sweeps.iter().all(|s| s.cases.is_empty()) {
        bail!("{}", selection(args.seed).why_empty()?);
    }
    let cases: Vec<&Case> = sweeps.iter().flat_map(|s| &s.cases).filter(|c| c.skip.is_none()).collect();
    let cases = sampled(cases, args.sample);
    if cases.is_empty() {
        bail!("no kernel takes a case that is selected: found only skipped cases; name another sweep or another --filter");
    }
    let limit = args.diagnose.then_some(Duration::from_secs(20));
    let (started, tallies, blind) = (Instant::now(), Mutex::new(Tallies::default()), Mutex::new(0usize));
    let notes = Mutex::new(Vec::new());
    let bar = counting(cases.len(), "cases", false);
    let one = |case: &&Case| -> Result<()> {
        bar.step();
        let ground = match build::ground(case) {
            Ok(ground) => ground,
            Err(crate::Error::Unsupported { .. }) => return Ok(()),
            Err(e) => return Err(e).with_context(|| case.id()),
        };
        if ground.verdict != Verdict::Pass {
            *blind.lock().expect("no panic while held") += 1;
            if ground.verdict != Verdict::NoPower {
                tallies.lock().expect("no panic while held").add_alarm(&ground.alarms().with_context(|| case.id())?);
            }
            return Ok(());
        }
        let alarms = ground.alarms().with_context(|| case.id())?;
        let kills = power::kills(&ground, case.index, limit).with_context(|| case.id())?;
        let mut lines = notes.lock().expect("no panic while held");
        for k in &kills {
            if let Some(n) = k.named.as_ref().filter(|n| !n.variant_right) {
                lines.push([case.id(), k.fault.name(), n.line.clone()]);
            }
        }
        let mut tallies = tallies.lock().expect("no panic while held");
        tallies.add_right(&alarms);
        tallies.add(case.op, &kills);
        Ok(())
    };
    parallel::collect(cases.len(), |n| one(&cases[n])).into_iter().collect::<Result<()>>()?;
    drop(bar);
    let tallies = tallies.into_inner().expect("no panic while held");
    let blind = blind.into_inner().expect("no panic while held");
    let seconds = started.elapsed().as_secs_f64();
    let times = judge_times::medians(&cases)?;
    let text = summary(&tallies, &times, cases.len(), blind, seconds);
    write(&args.out, &named, &tallies, &times, &notes.into_inner().expect("no panic while held"), &text, args.diagnose)?;
    print(&format!("{text}\nreport: {}\n", args.out.join("power.html").display()));
    Ok(status::PASSED)
}

/// Questions of the grammar, and what came of them.
fn grammar(n: usize, seed: u64, out: &std::path::Path) -> Result<u8> {
    use crate::fault::grammar::{Score, ask, draw::question};
    let bar = counting(n, "questions", false);
    let one = |number: usize| {
        let number = number as u64;
        let two = number % 4 == 3;
        let q = question(seed, number, two)?;
        let words = format!("{:?} in rows {:?}, columns {:?}", q.effects, q.region.rows, q.region.cols);
        let score = ask(&q)?;
        bar.step();
        Ok((number, two, words, score))
    };
    let asked: Vec<(u64, bool, String, Score)> = parallel::collect(n, one).into_iter().collect::<crate::Result<_>>()?;
    drop(bar);
    let mut text = format!("{} alarms in {n} right results\n", asked.iter().filter(|a| a.3.alarm).count());
    for two in [false, true] {
        let all: Vec<&Score> = asked.iter().filter(|a| a.1 == two && a.3.changed).map(|a| &a.3).collect();
        let count = |f: &dyn Fn(&Score) -> bool| percent(all.iter().filter(|s| f(s)).count(), all.len());
        let drawn = asked.iter().filter(|a| a.1 == two).count();
        let mut seconds: Vec<f64> = all.iter().map(|s| s.seconds).collect();
        seconds.sort_by(f64::total_cmp);
        let _ = writeln!(
            text,
            "{}: {drawn} drawn, {} change the result by more than its bound; named {}; with every number {}; wrong {}; unknown {}; \
             seconds: median {:.2}, most {:.2}",
            if two { "two faults at once" } else { "one fault" },
            all.len(),
            count(&|s| s.named),
            count(&|s| s.numbers),
            count(&|s| s.wrong),
            count(&|s| s.unknown),
            seconds.get(seconds.len() / 2).copied().unwrap_or(0.0),
            seconds.last().copied().unwrap_or(0.0),
        );
    }
    std::fs::create_dir_all(out).map_err(|e| crate::Error::io(out, e, "choose a folder that can be written with --out"))?;
    let mut csv = csv::Writer::from_path(out.join("grammar.csv"))?;
    csv.write_record(["number", "question", "changed", "named", "numbers", "wrong", "unknown", "seconds", "answer"])?;
    for (number, _, words, s) in &asked {
        let bits = [s.changed, s.named, s.numbers, s.wrong, s.unknown].map(|b| u8::from(b).to_string());
        let fields = [number.to_string(), words.clone()].into_iter().chain(bits);
        csv.write_record(fields.chain([format!("{:.3}", s.seconds), s.line.clone()]))?;
    }
    csv.flush()?;
    print(&format!("{text}answers: {}\n", out.join("grammar.csv").display()));
    Ok(status::PASSED)
}

/// A share of each family of cases, evenly.
fn sampled(cases: Vec<&Case>, most: Option<usize>) -> Vec<&Case> {
    let Some(most) = most.filter(|n| *n < cases.len()) else { return cases };
    let all = cases.len();
    cases
        .chunk_by(|a, b| a.family == b.family)
        .flat_map(|family| {
            let n = (most * family.len()).div_ceil(all).clamp(1, family.len());
            // An odd step keeps the axes of the table from falling together.
            (0..n).map(move |i| family[(i * family.len() / n + i) % family.len()])
        })
        .collect()
}

fn percent(part: usize, whole: usize) -> String {
    if whole == 0 { "none".into() } else { format!("{:.2} % ({part} of {whole})", 100.0 * part as f64 / whole as f64) }
}

fn summary(t: &Tallies, times: &[f64], cases: usize, blind: usize, seconds: f64) -> String {
    let changed = t.sum(|t| t.changed);
    let mut text = String::new();
    let mut line = |s: String| {
        let _ = writeln!(text, "{s}");
    };
    line(format!(
        "{} faults of {} classes in {cases} cases, {seconds:.0} s",
        t.faults.iter().filter(|t| t.changed > 0).count(),
        t.kills().1.values().filter(|n| **n > 0).count()
    ));
    if blind > 0 {
        line(format!("left out: {blind} of the cases, without power or not passing"));
    }
    line(format!("injected and changed a bit: {changed}"));
    line(format!("{:<26}{:<25}{:<19}{:>8}", "", "caught", "false alarms", "time"));
    for (((judge, caught), alarms), time) in tally::judges().iter().zip(t.caught()).zip(&t.alarms).zip(times) {
        let (caught, alarms) = (percent(caught, changed), percent(*alarms, t.right));
        line(format!("{judge:<26}{caught:<25}{alarms:<19}{:>8}", figures::time(*time)));
    }
    let never = |f: &dyn Fn(&tally::Tally) -> Vec<&'static str>| {
        t.faults
            .iter()
            .map(|t| (t, f(t)))
            .filter(|(_, ops)| !ops.is_empty())
            .map(|(t, ops)| format!("  {} in {}", t.fault.name(), ops.join(", ")))
            .collect::<Vec<_>>()
    };
    for (what, list) in [
        ("the device model's bits", never(&|t| t.ops.difference(&t.ops_by_model).copied().collect())),
        ("the bound alone", never(&|t| t.ops.difference(&t.ops_by_bound).copied().collect())),
    ] {
        line(format!(
            "never caught by {what} in any case of an op: {}",
            if list.is_empty() { "none".into() } else { list.len().to_string() }
        ));
        list.into_iter().for_each(&mut line);
    }
    let asked = t.sum(|t| t.asked);
    if asked > 0 {
        line(format!("named in class: {}", percent(t.sum(|t| t.class_right), asked)));
        line(format!("named in variant: {}", percent(t.sum(|t| t.variant_right), asked)));
        line(format!("named alone (no other variant would give the same result): {}", percent(t.sum(|t| t.alone), asked)));
    }
    text
}

fn write(
    out: &std::path::Path,
    named: &[String],
    t: &Tallies,
    times: &[f64],
    notes: &[[String; 3]],
    text: &str,
    diagnosed: bool,
) -> Result<()> {
    let folder = out.join("figures");
    std::fs::create_dir_all(&folder)
        .map_err(|e| crate::Error::io(&folder, e, "choose a folder that can be written with --out"))?;
    let mut csv = csv::Writer::from_path(out.join("power.csv"))?;
    let header =
        ["class", "variant", "changed", "device_model", "bound", "asked", "class_right", "variant_right", "alone", "named"];
    let gates: Vec<&str> = crate::compare::gates::GATES.iter().map(|g| g.name).collect();
    csv.write_record(header.iter().copied().chain(gates))?;
    for t in &t.faults {
        let called: Vec<String> = t.named.iter().map(|(n, c)| format!("{n}={c}")).collect();
        let numbers =
            [t.changed, t.by_model, t.by_bound, t.asked, t.class_right, t.variant_right, t.alone].map(|n| n.to_string());
        let fields = [t.fault.class.name().to_string(), t.fault.variant.to_string()].into_iter().chain(numbers);
        csv.write_record(fields.chain([called.join(" ")]).chain(t.by_gate.iter().map(ToString::to_string)))?;
    }
    csv.flush()?;
    let mut misnamed = csv::Writer::from_path(out.join("misnamed.csv"))?;
    misnamed.write_record(["case", "fault", "diagnosis"])?;
    notes.iter().try_for_each(|n| misnamed.write_record(n))?;
    misnamed.flush()?;
    let (counts, totals) = t.kills();
    let matrix = |columns: &[String], counts: &_, totals: &_| figures::Matrix::of(&tally::answers(), columns, counts, totals);
    let share = |n: usize, of: usize| 100.0 * n as f64 / of.max(1) as f64;
    let changed = t.sum(|t| t.changed);
    let rows = tally::judges().into_iter().zip(t.caught()).zip(&t.alarms).zip(times);
    let worth: Vec<figures::Worth> = rows
        .map(|(((judge, caught), alarms), time)| figures::Worth {
            judge,
            caught: share(caught, changed),
            alarms: share(*alarms, t.right),
            seconds: *time,
        })
        .collect();
    let here =
        figures::Right { name: format!("right results ({})", t.right), percent: worth.iter().map(|w| w.alarms).collect() };
    let right: Vec<figures::Right> = [here].into_iter().chain(clean::read(out)?).collect();
    let kills = matrix(&tally::judges(), &counts, &totals);
    let mut all = vec![figures::kills(&kills, &right), figures::worth(&worth, t.right)];
    let called = diagnosed.then(|| {
        let (counts, totals) = t.confusion();
        matrix(&tally::answers(), &counts, &totals)
    });
    all.extend(called.as_ref().map(figures::confusion));
    let mut page = format!("# Power of verdicts\n\n```text\n{text}```\n");
    for figure in &all {
        std::fs::write(
            folder.join(format!("{}.svg", figure.id)),
            crate::report::plot::standalone(&figure.charts[0].1, figure.title, &figure.see),
        )?;
        std::fs::write(folder.join(format!("{}.csv", figure.id)), &figure.data)?;
        let _ = write!(page, "\n## {}\n\n{}\n\n![{}](figures/{}.svg)\n", figure.title, figure.see, figure.title, figure.id);
    }
    std::fs::write(out.join("summary.md"), page)?;
    let (model, bound) = (t.caught()[0], t.caught()[1]);
    let answer = format!(
        "Of {changed} faults the device model's bits catch {:.1} %, the bound alone {:.1} %; of {} right results {} fail",
        share(model, changed),
        share(bound, changed),
        t.right,
        t.alarms[0].max(t.alarms[1])
    );
    let (date, revision, command) = (provenance::now(), provenance::revision(), provenance::command());
    let page = figures::page(&figures::Page {
        what: &format!("{} on cpu, {}", named.join(", "), provenance::cpu()),
        ran: &[("date", &date), ("revision", &revision), ("qassay", env!("CARGO_PKG_VERSION")), ("command", &command)],
        answer: &answer,
        worth: &worth,
        kills: &kills,
        right: &right,
        named: called.as_ref(),
        text,
        figures: &all,
    });
    super::outputs::save(&out.join("power.html"), &page)
}
