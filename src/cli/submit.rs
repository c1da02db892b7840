//! `qassay submit`: a sweep as a Slurm job array, one task a shard, and a dependent job that merges.

use super::{print, status};
use crate::assay::command::shell_word;
use crate::run::plan::Selection;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Submit a sweep to Slurm: a job array of shards and a merge job that waits for all of them; `qassay status` shows progress.
#[derive(clap::Args)]
#[command(
    override_usage = "qassay submit [OPTIONS] --slurm --array <N> --out <DIR> <SWEEP>...\n       [-- <RUN>...]",
    after_help = "Example:\n  qassay submit --slurm full --array 16 --out reports/full --partition gpu \\
      --gres gpu:1 -- --backend cuda\n  \
qassay status reports/full\n\nA task that is killed is queued again (--retries) and goes on where it was. All nodes must see the \
folder."
)]
pub struct Args {
    /// Sweeps by name or path.
    #[arg(required = true)]
    sweep: Vec<String>,
    /// Submit to Slurm, the one scheduler supported. For any other, use `qassay run --shard` (docs/clusters.md).
    #[arg(long, required = true)]
    slurm: bool,
    /// Tasks: one shard each.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    array: u32,
    /// Folder to write, seen by all nodes: scripts, logs, a folder for each shard, and merged/.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Slurm partition.
    #[arg(long)]
    partition: Option<String>,
    /// Generic resources of each task, such as gpu:1.
    #[arg(long)]
    gres: Option<String>,
    /// Time limit of a task, in Slurm's words.
    #[arg(long, value_name = "TIME")]
    time: Option<String>,
    /// Memory of a task, in Slurm's words.
    #[arg(long, value_name = "SIZE")]
    mem: Option<String>,
    /// Cores of a task.
    #[arg(long, value_name = "N", default_value_t = 1)]
    cpus: u32,
    /// How often a task that dies is queued again by itself.
    #[arg(long, value_name = "N", default_value_t = 3)]
    retries: u32,
    /// Options for each task's `qassay run`, after `--`: --backend cuda, --seed 1, --timeout 90s, …
    #[arg(last = true)]
    run: Vec<String>,
}

/// What was submitted: `submit.json`.
#[derive(serde::Serialize, serde::Deserialize)]
pub struct Submitted {
    pub shards: u32,
    /// Job arrays, the first and those of shards queued again by hand.
    pub arrays: Vec<String>,
    pub merge: String,
    /// What each task runs, without its shard.
    pub command: Vec<String>,
}

impl Submitted {
    pub fn read(out: &Path) -> Result<Self> {
        let path = out.join("submit.json");
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("{}: name the folder of a `qassay submit`", path.display()))?;
        serde_json::from_str(&text)
            .with_context(|| format!("{}: found no record of a submission; submit into a new folder", path.display()))
    }
    pub fn write(&self, out: &Path) -> Result<()> {
        let path = out.join("submit.json");
        let text = serde_json::to_string_pretty(self).expect("texts and numbers are JSON") + "\n";
        std::fs::write(&path, text).with_context(|| format!("{}: could not be written", path.display()))
    }
}

pub fn run(args: Args) -> Result<u8> {
    // A name that does not exist is refused here, not in N tasks.
    let selection = Selection { sweeps: args.sweep.clone(), ..Selection::default() };
    let cases: usize = selection.load()?.iter().map(|s| s.cases.len()).sum();
    if args.out.join("submit.json").exists() {
        bail!("{}: holds a submission already; name another folder, or see `qassay status`", args.out.display());
    }
    std::fs::create_dir_all(args.out.join("logs")).with_context(|| format!("{}: could not be made", args.out.display()))?;
    let out = args.out.canonicalize().with_context(|| args.out.display().to_string())?;
    let program = std::env::current_exe().context("the program's own path")?;
    let mut command = vec![program.display().to_string(), "run".into()];
    // The task may start in another folder.
    command.extend(args.sweep.iter().map(|s| Path::new(s).canonicalize().map_or(s.clone(), |p| p.display().to_string())));
    command.extend(args.run.iter().cloned());
    write(&out.join("array.sbatch"), &array_script(&args, &out, &command))?;
    write(&out.join("merge.sbatch"), &merge_script(&args, &out, &program))?;
    let array = sbatch(&out, &["--array", &format!("1-{}", args.array)], "array.sbatch")?;
    let merge = sbatch(&out, &["--dependency", &format!("afterok:{array}")], "merge.sbatch")?;
    Submitted { shards: args.array, arrays: vec![array.clone()], merge: merge.clone(), command }.write(&out)?;
    print(&format!(
        "{cases} cases in {} shards: job array {array}, then merge job {merge}\nprogress: qassay status {}\n",
        args.array,
        args.out.display()
    ));
    Ok(status::PASSED)
}

/// Submits a script of the folder and returns the job's number.
pub fn sbatch(out: &Path, options: &[&str], script: &str) -> Result<String> {
    let made = Command::new("sbatch").arg("--parsable").args(options).arg(out.join(script)).current_dir(out).output().context(
        "sbatch could not be started; run this on a node that submits to Slurm, or use --shard with another scheduler",
    )?;
    if !made.status.success() {
        bail!("sbatch {script}: {}", String::from_utf8_lossy(&made.stderr).trim());
    }
    // `id` or `id;cluster`.
    let answer = String::from_utf8_lossy(&made.stdout).into_owned();
    let id = answer.trim().split(';').next().unwrap_or_default().to_string();
    if id.is_empty() || !id.bytes().all(|b| b.is_ascii_digit()) {
        bail!("sbatch {script}: found the answer `{}`, expected a job number", answer.trim());
    }
    Ok(id)
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("{}: could not be written", path.display()))
}

fn header(args: &Args, out: &Path, name: &str, log: &str) -> String {
    let optional = [("partition", &args.partition), ("time", &args.time)];
    let more: String = optional.iter().filter_map(|(k, v)| Some(format!("#SBATCH --{k}={}\n", v.as_ref()?))).collect();
    format!(
        "#!/bin/bash\n#SBATCH --job-name=qassay-{name}\n#SBATCH --output={}/logs/{log}\n#SBATCH --open-mode=append\n#SBATCH --requeue\n{more}",
        out.display()
    )
}

/// One task: its shard, resumed, so that a task that was killed and runs again recomputes nothing. Verdicts (exit status 1 and 3) are
/// results, not failures of the task.
fn array_script(args: &Args, out: &Path, command: &[String]) -> String {
    let resources: String = [("gres", &args.gres), ("mem", &args.mem)]
        .iter()
        .filter_map(|(k, v)| Some(format!("#SBATCH --{k}={}\n", v.as_ref()?)))
        .collect();
    let words: Vec<String> = command.iter().map(|w| shell_word(w)).collect();
    format!(
        "{}#SBATCH --cpus-per-task={}\n{resources}\
shard=$SLURM_ARRAY_TASK_ID
{} --shard \"$shard/{}\" --out {}/shard-\"$shard\" --resume --quiet --jobs {}
rc=$?
case $rc in 0|1|3) exit 0;; esac
echo \"shard $shard ended with status $rc, start ${{SLURM_RESTART_COUNT:-0}}\"
if [ \"${{SLURM_RESTART_COUNT:-0}}\" -lt {} ]; then scontrol requeue \"${{SLURM_ARRAY_JOB_ID}}_$shard\"; sleep 60; fi
exit $rc
",
        header(args, out, "shard", "shard-%a.log"),
        args.cpus,
        words.join(" "),
        args.array,
        shell_word(&out.display().to_string()),
        args.cpus,
        args.retries,
    )
}

/// Joins the shards; verdicts of the whole are no failure of the job.
fn merge_script(args: &Args, out: &Path, program: &Path) -> String {
    let folder = shell_word(&out.display().to_string());
    format!(
        "{}rm -rf {folder}/merged.part\n{} merge $(seq -f {folder}/shard-%.0f {}) --out {folder}/merged.part\nrc=$?\n\
case $rc in 0|1|3) mv {folder}/merged.part {folder}/merged; exit 0;; esac\nexit $rc\n",
        header(args, out, "merge", "merge.log"),
        shell_word(&program.display().to_string()),
        args.array,
    )
}
