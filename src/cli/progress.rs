//! `qassay status`: how far a submission is, and what to do about shards that died.

use super::submit::{Submitted, sbatch};
use super::{print, status};
use crate::Error;
use crate::run::facts::Facts;
use anyhow::{Context, Result, bail};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Show how far a submission is. Exit status 0 when it is merged, 4 while it is on its way, 1 when a shard died.
#[derive(clap::Args)]
pub struct Args {
    /// The folder of a `qassay submit`.
    out: PathBuf,
    /// Queue shards that died again, and the merge after them.
    #[arg(long)]
    requeue: bool,
}

/// One shard.
struct Shard {
    /// Rows that are complete, and planned where the shard has begun.
    done: usize,
    planned: Option<usize>,
    /// Slurm's word; empty where Slurm knows no such task any more.
    state: String,
}

impl Shard {
    fn complete(&self) -> bool {
        self.planned == Some(self.done) && self.state.is_empty()
    }
    fn died(&self) -> bool {
        !self.complete() && self.state.is_empty()
    }
}

pub fn run(args: Args) -> Result<u8> {
    let remedy = "give the folder that `qassay submit --out` named";
    let out = args.out.canonicalize().map_err(|e| Error::io(&args.out, e, remedy))?;
    let mut submitted = Submitted::read(&out)?;
    let queue = queue(&submitted)?;
    let shards: Vec<Shard> = (1..=submitted.shards).map(|i| shard(&out, i, &queue)).collect();
    let merged = out.join("merged").join("index.html");
    let mut text = String::new();
    for (i, s) in shards.iter().enumerate() {
        let planned = s.planned.map_or("?".into(), |n| n.to_string());
        let state = if s.complete() {
            "complete"
        } else if s.died() {
            "died"
        } else {
            &s.state
        };
        text += &format!("shard {:<6}{:>8} of {planned:<8} {state}\n", i + 1, s.done);
    }
    let (complete, died) = (shards.iter().filter(|s| s.complete()).count(), shards.iter().filter(|s| s.died()).count());
    text += &format!("{complete} of {} shards complete, {died} died\n", shards.len());
    if merged.exists() {
        print(&(text + &format!("report: {}\n", merged.display())));
        return Ok(status::PASSED);
    }
    if args.requeue && died > 0 {
        let which: Vec<String> = (1..).zip(&shards).filter(|(_, s)| s.died()).map(|(i, _)| i.to_string()).collect();
        // The old merge job waits for a task that failed: it would never start.
        let cancelled = Command::new("scancel").arg(&submitted.merge).output().context("scancel could not be started")?;
        if !cancelled.status.success() {
            bail!("scancel {}: {}", submitted.merge, String::from_utf8_lossy(&cancelled.stderr).trim());
        }
        let array = sbatch(&out, &["--array", &which.join(",")], "array.sbatch")?;
        // Tasks of earlier arrays that are still there, and the new ones.
        let waiting = submitted.arrays.iter().filter(|a| queue.keys().any(|(array, _)| array == *a));
        let after: Vec<String> = waiting.chain([&array]).map(|a| format!("afterok:{a}")).collect();
        submitted.merge = sbatch(&out, &["--dependency", &after.join(",")], "merge.sbatch")?;
        submitted.arrays.push(array.clone());
        submitted.write(&out)?;
        text += &format!("shards {} queued again as {array}, then merge job {}\n", which.join(","), submitted.merge);
    } else if died > 0 {
        text += "see logs/ for why; `qassay status --requeue` queues them again\n";
    } else if complete == shards.len() && !queue.contains_key(&(submitted.merge.clone(), 0)) {
        text += &format!("the merge failed: see {}\n", out.join("logs/merge.log").display());
        print(&text);
        return Ok(status::FAILED);
    }
    print(&text);
    Ok(if died > 0 && !args.requeue { status::FAILED } else { status::INCOMPLETE })
}

/// State of each task that Slurm still has, by array job and task; a job that is no array has task 0.
fn queue(submitted: &Submitted) -> Result<HashMap<(String, u32), String>> {
    let mut states = HashMap::new();
    for job in submitted.arrays.iter().chain([&submitted.merge]) {
        let made = Command::new("squeue").args(["-h", "-r", "-o", "%F %K %T", "-j", job]).output();
        let made = made.context("squeue could not be started; run this where Slurm's commands are")?;
        // A job that ended long ago is unknown to squeue, which is an error to it and none here.
        for line in String::from_utf8_lossy(&made.stdout).lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if let [array, task, state] = words[..] {
                states.insert((array.to_string(), task.parse().unwrap_or(0)), state.to_lowercase());
            }
        }
    }
    Ok(states)
}

fn shard(out: &Path, i: u32, queue: &HashMap<(String, u32), String>) -> Shard {
    let folder = out.join(format!("shard-{i}"));
    let planned = Facts::read(&folder).ok().and_then(|f| f.get("cases").split(' ').next()?.parse().ok());
    let rows = crate::assay::row::count(&folder.join("rows.csv")).unwrap_or(0);
    let state = queue.iter().find(|((_, task), _)| *task == i).map_or(String::new(), |(_, s)| s.clone());
    Shard { done: rows, planned, state }
}
