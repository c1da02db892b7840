//! Kernels that are programs of their own, in a sweep: what goes wrong with one is the row of its case, and the rest goes on.

mod common;
#[path = "../examples/my_kernel.rs"]
mod my_kernel;

use common::qassay;
use my_kernel::MyGemm;
use qassay::compare::Verdict;
use qassay::kernel::Backend;
use qassay::sweep::{Sweep, assay};
use std::path::Path;
use std::time::{Duration, Instant};

const SWEEP: &str = "about = \"nine\"\n[[cases]]\nname = \"nine\"\nop = [\"activation\"]\nact = [\"relu\"]\nshape = [\"5x7\"]\ndtype = [\"f32\"]\nout = [\"f32\"]\nseeds = 9\n";

/// The command line of a run of nine cases by `tests/candidate.py`, misbehaving so.
fn command(folder: &Path, how: &str) -> assert_cmd::Command {
    std::fs::write(folder.join("nine.toml"), SWEEP).unwrap();
    let mut command = qassay();
    command.arg("run").arg(folder.join("nine.toml")).args(["--candidate", "python3 tests/candidate.py", "--quiet", "--out"]);
    command.arg(folder.join(how)).env("MISBEHAVE", how).env("COUNT", folder.join(format!("{how}.count"))).env("TMPDIR", folder);
    command
}

/// Verdicts and reasons of a run.
fn rows(folder: &Path, how: &str) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(folder.join(how).join("rows.csv")).unwrap();
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().unwrap().clone();
    let at = |name: &str| header.iter().position(|h| h == name).unwrap();
    let (verdict, reason) = (at("verdict"), at("reason"));
    reader.records().map(|r| r.unwrap()).map(|r| (r[verdict].to_string(), r[reason].to_string())).collect()
}

#[test]
fn a_candidate_that_is_right_passes() {
    let folder = tempfile::tempdir().unwrap();
    command(folder.path(), "").assert().success();
    let rows = rows(folder.path(), "");
    assert_eq!(rows.len(), 9);
    assert!(rows.iter().all(|r| r.0 == "pass"), "{rows:?}");
}

#[test]
fn each_misfortune_is_the_row_of_its_case_and_the_rest_goes_on() {
    for (how, verdict, words) in [
        ("crash", "error", "it ended, exit status: 1: out of luck"),
        ("hang", "error", "it took longer than --timeout 8s and was killed"),
        ("garbage", "error", "found `progress: 50%`, expected {\"status\":\"done\"}"),
        ("endless", "error", "it printed a line of more than 1048576 bytes and was killed"),
        ("error", "error", "found no luck, expected a result"),
        ("unsupported", "skipped", "not today"),
        ("missing", "error", "out.safetensors: No such file"),
        ("shape", "error", "tensor `out` of shape [7, 5], expected [5, 7]"),
        ("short", "error", "a whole safetensors file"),
        ("wrong", "fail", "outside"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        // Long enough for Python to start on a machine that is busy.
        command(folder.path(), how)
            .args(["--timeout", if how == "hang" { "8s" } else { "10m" }])
            .assert()
            .code(if how == "unsupported" { 0 } else { 1 });
        let rows = rows(folder.path(), how);
        assert_eq!(rows.len(), 9, "{how}");
        let (odd, good): (Vec<_>, Vec<_>) = rows.iter().partition(|r| r.0 != "pass");
        assert_eq!((odd.len(), good.len()), (3, 6), "{how}: {rows:?}");
        for (found, reason) in odd {
            assert!(found == verdict && reason.contains(words), "{how}: {found}: {reason}");
        }
        // Nothing is left behind: no bundle, no process that a killed one had started.
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert!(!left.iter().any(|n| n.to_string_lossy().starts_with("qassay-")), "{how}: {left:?}");
        if let Ok(child) = std::fs::read_to_string(folder.path().join("hang.count.child")) {
            assert!(ends(child.trim()), "process {child} lives");
        }
    }
}

/// One that ends before it has answered anything, and ends so with nothing to do too, ends the run with one error and leaves nothing.
#[test]
fn a_candidate_that_cannot_start_ends_the_run() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("nine.toml"), SWEEP).unwrap();
    for (candidate, words) in [("python3 no_such_kernel.py", "no_such_kernel.py"), ("no-such-program", "not found")] {
        let out = folder.path().join("run");
        let mut command = qassay();
        command.arg("run").arg(folder.path().join("nine.toml")).args(["--candidate", candidate, "--quiet", "--out"]).arg(&out);
        let made = command.env("TMPDIR", folder.path()).assert().code(2).get_output().clone();
        let said = String::from_utf8_lossy(&made.stderr).into_owned();
        assert!(said.contains(&format!("candidate `{candidate}` does not start")) && said.contains(words), "{said}");
        assert_eq!((said.lines().count(), made.stdout.len()), (1, 0), "{said}");
        assert!(!out.exists(), "a run that never began left a folder");
    }
}

/// Whether a process is gone, or soon is. Orphans are reaped by init, which may leave a zombie for a while.
fn ends(pid: &str) -> bool {
    (0..300).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z")
    })
}

/// Two Ctrl-C end the run at once, and all that the candidate had started.
#[test]
fn ctrl_c_kills_the_process_group() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("nine.toml"), SWEEP).unwrap();
    let mut run = std::process::Command::new(env!("CARGO_BIN_EXE_qassay"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .arg("run")
        .arg(folder.path().join("nine.toml"))
        .args(["--candidate", "python3 tests/candidate.py", "--quiet", "--timeout", "10m", "--out"])
        .arg(folder.path().join("hang"))
        .env("MISBEHAVE", "hang")
        .env("COUNT", folder.path().join("hang.count"))
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let started = folder.path().join("hang.count.child");
    let begin = Instant::now();
    let child = loop {
        match std::fs::read_to_string(&started) {
            Ok(child) if child.ends_with('\n') => break child,
            _ => assert!(begin.elapsed() < Duration::from_secs(60), "the candidate never came to its second case"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    for _ in 0..2 {
        // SAFETY: a plain system call on a child that is not waited for yet.
        unsafe { libc::kill(run.id() as libc::pid_t, libc::SIGINT) };
        std::thread::sleep(Duration::from_millis(300));
    }
    assert_eq!(run.wait().unwrap().code(), Some(130));
    assert!(ends(child.trim()), "process {child} lives");
}

/// What can be known of a user's CUDA kernel without a GPU is said, and then that there is none. With one, its cases pass.
#[test]
fn a_kernel_of_ones_own_is_checked_before_it_needs_a_gpu() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let mut command = qassay();
        command.args(["run", "smoke", "--filter", "float8_rowwise", "--quiet", "--out"]).arg(folder.path().join("run"));
        command.args(arguments).assert()
    };
    let example = "examples/my_kernel.cu";
    let own = run(&["--kernel", example, "--entry", "my_gemm", "--op", "gemm"]).get_output().clone();
    let said = String::from_utf8_lossy(&own.stderr).to_string();
    match own.status.code() {
        Some(2) => assert!(said.contains("libcuda") || said.contains("libnvrtc"), "{said}"),
        code => assert_eq!(code, Some(0), "{said}"),
    }
    for (arguments, words) in [
        (
            &["--kernel", example, "--entry", "other", "--op", "gemm"][..],
            "found declarations of my_gemm, expected one of entry other",
        ),
        (&["--kernel", example, "--entry", "my_gemm", "--op", "matmul"], "--op: unknown op `matmul`; known: cast,"),
        (&["--kernel", example, "--op", "gemm"], "--entry <NAME>"),
        (&["--kernel", "no.cu", "--entry", "f", "--op", "gemm"], "no.cu: No such file"),
        (&["--kernel", example, "--entry", "f", "--op", "gemm", "--signature", "f(a, out)"], "`grid=…` and `block=…`"),
        (&["--kernel", example, "--entry", "my_gemm", "--op", "gemm", "--candidate", "x"], "cannot be used with"),
    ] {
        run(arguments).code(2).stderr(predicates::str::contains(words));
    }
    // The process that a GPU's cases run in takes the same words.
    qassay().args(["worker", "--help"]).assert().success().stdout(predicates::str::contains("--signature"));
}

/// The example of the library runs; its right kernel passes, the one that forgets a scale fails by that name.
#[test]
fn the_example_of_the_library_prints_verdicts() {
    my_kernel::main().unwrap();
    let sweep = Sweep::load("smoke", 0).unwrap();
    let cases: Vec<_> = sweep.cases.iter().filter(|c| &*c.family == "accumulators").collect();
    let rows = |kernel: &'static MyGemm| -> Vec<_> {
        cases
            .iter()
            .map(|c| assay::assay(c, &[kernel], Backend::External, 0))
            .map(|r| (r.verdict, r.fault + &r.reason))
            .collect()
    };
    let count = |rows: &[(Verdict, String)], verdict: Verdict, words: &str| {
        rows.iter().filter(|r| r.0 == verdict && r.1.contains(words)).count()
    };
    let right = rows(&MyGemm { forgets_scale: false });
    // Fast accumulation over the longest K allows as much as the signal is: nothing could fail there.
    let powerless = count(&right, Verdict::NoPower, "larger than the signal");
    assert!(cases.len() == 9 && powerless <= 1 && count(&right, Verdict::Pass, "") + powerless == 9, "{right:?}");
    let wrong = rows(&MyGemm { forgets_scale: true });
    assert!(count(&wrong, Verdict::Fail, "scale_omitted:a") == 9, "{wrong:?}");
}

/// The benchmark of PyTorch says what is missing: PyTorch, a GPU, the other table.
#[test]
fn a_benchmark_without_pytorch_or_a_gpu_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let modules = |name: &str, torch: &str| {
        let modules = folder.path().join(name);
        std::fs::create_dir_all(modules.join("torch/nn")).unwrap();
        std::fs::write(modules.join("torch/__init__.py"), torch).unwrap();
        std::fs::write(modules.join("torch/nn/__init__.py"), "").unwrap();
        std::fs::write(modules.join("torch/nn/functional.py"), "").unwrap();
        modules
    };
    let none = modules("none", "raise ImportError('no torch here')");
    let blind = modules("blind", "class cuda:\n    is_available = staticmethod(lambda: False)\n");
    std::fs::write(folder.path().join("odd.csv"), "group,time\nx,1\n").unwrap();
    let odd = folder.path().join("odd.csv").display().to_string();
    let asks: [(&Path, &[&str], &str); 4] = [
        (&none, &[], "PyTorch is not installed: pip install torch"),
        (&blind, &[], "PyTorch sees no CUDA GPU"),
        (&none, &["--bench", "no-such.csv"], "no-such.csv: No such file"),
        (&none, &["--bench", &odd], "no column backend"),
    ];
    for (modules, arguments, words) in asks {
        let mut command = assert_cmd::Command::new("python3");
        command.arg("notebooks/python/bench_torch.py").args(arguments).env("PYTHONPATH", modules);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(words) && output.stdout.is_empty(), "{words}: {said}");
    }
}
