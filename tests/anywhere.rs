//! The program runs where its source never was: a copy of it, in an empty folder, with the source tree hidden.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// How to start a command with the source tree hidden: a mount namespace in which the tree is an empty folder. `None` where the system
/// allows none.
fn hiding() -> Option<Vec<&'static str>> {
    let ways = [vec!["unshare", "--mount"], vec!["unshare", "--mount", "--map-root-user"]];
    ways.into_iter().find(|way| {
        let probe =
            Command::new(way[0]).args(&way[1..]).args(["mount", "-t", "tmpfs", "none", env!("CARGO_MANIFEST_DIR")]).output();
        probe.is_ok_and(|o| o.status.success())
    })
}

struct Anywhere {
    folder: tempfile::TempDir,
    program: PathBuf,
    hiding: Option<Vec<&'static str>>,
}

impl Anywhere {
    fn new() -> Anywhere {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("bin/qassay");
        std::fs::create_dir_all(program.parent().unwrap()).unwrap();
        std::fs::create_dir(folder.path().join("empty")).unwrap();
        std::fs::copy(env!("CARGO_BIN_EXE_qassay"), &program).unwrap();
        let hiding = hiding();
        if hiding.is_none() {
            eprintln!("no mount namespace here: the program is a copy in an empty folder, but its source tree can be seen");
        }
        Anywhere { folder, program, hiding }
    }

    fn at(&self, relative: &str) -> PathBuf {
        self.folder.path().join("empty").join(relative)
    }

    fn run(&self, arguments: &str) -> Output {
        let tree = env!("CARGO_MANIFEST_DIR");
        let mut command = match &self.hiding {
            Some(way) => {
                let mut command = Command::new(way[0]);
                let script = "mount -t tmpfs none \"$1\" && [ -z \"$(ls -A \"$1\")\" ] && shift && exec \"$@\"";
                command.args(&way[1..]).args(["sh", "-c", script, "sh", tree]).arg(&self.program);
                command
            }
            None => Command::new(&self.program),
        };
        command.args(arguments.split_whitespace()).current_dir(self.at("")).env_clear().env("PATH", "/usr/sbin:/usr/bin:/bin");
        command.output().unwrap()
    }

    /// Runs, and holds the exit status; gives what was printed.
    fn expect(&self, arguments: &str, status: i32) -> String {
        let output = self.run(arguments);
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(status), "qassay {arguments}\n{text}");
        assert!(!text.contains(env!("CARGO_MANIFEST_DIR")), "qassay {arguments} names the builder's folder:\n{text}");
        text
    }
}

#[test]
fn every_verb_works_in_an_empty_folder() {
    let here = Anywhere::new();
    for what in "formats recipes ops kernels metrics distributions sweeps scenarios models faults gates columns".split(' ') {
        assert!(here.expect(&format!("list {what}"), 0).lines().count() > 2, "{what}");
    }
    assert!(here.expect("list distributions", 0).contains("minilm:layer0.ffn_in_weight"));
    assert!(here.expect("list sweeps", 0).contains("standard"));
    assert!(here.expect("list faults", 0).contains("stale_state"));
    here.expect("plan standard", 0);
    here.expect("run smoke --quiet --out run", 0);
    assert!(here.expect("run smoke --quiet --jobs 1 --timeout 60 --filter minilm --out part", 0).contains("19 cases"));
    let provenance = std::fs::read_to_string(here.at("run/provenance.txt")).unwrap();
    let revision = provenance.lines().find_map(|l| l.strip_prefix("revision: ")).unwrap();
    let hash = revision.trim_end_matches('+').len() == 12 && revision[..12].chars().all(|c| c.is_ascii_hexdigit());
    assert!(hash || revision.starts_with("built from crate "), "{revision}");
    here.expect("report run", 0);
    assert!(here.expect("accept run --new", 0).contains("accepted: data/baselines/cpu/smoke.csv"));
    assert!(here.expect("check smoke --quiet", 0).contains("no drift"));
    here.expect("check smoke --quiet --inject stale_state:b.scale_inv", 1);
    assert!(here.expect("diff run run", 0).contains("no drift"));
    assert!(here.expect("stale 07_amax_not_reduced", 0).contains("each as its law says"));
    assert!(here.expect("power smoke --filter 12x20* --sample 20", 0).contains("20"));
    assert!(here.expect("completions bash", 0).contains("complete -F"));
    assert!(here.expect("run no_such_sweep", 2).contains("known: cuda, faults, full"));
    assert!(here.expect("stale 07_amax", 2).contains("07_amax_not_reduced"));
    assert!(here.expect("helper", 0).contains("def serve(kernel"));
    assert!(here.expect("helper --format", 0).contains("| `qassay.bundle` | `1` | required |"));
}

#[test]
fn bundles_are_judged_and_files_of_the_folder_come_first() {
    let here = Anywhere::new();
    let tree = Path::new(env!("CARGO_MANIFEST_DIR"));
    std::fs::copy(tree.join("data/bundles/row.safetensors"), here.at("row.safetensors")).unwrap();
    assert!(here.expect("assay row.safetensors --html page.html", 0).starts_with("PASS"));
    assert!(here.at("page.html").exists());
    std::fs::create_dir_all(here.at("data/sweeps")).unwrap();
    std::fs::write(
        here.at("data/sweeps/smoke.toml"),
        "about = \"mine\"\n[[cases]]\nname = \"x\"\nop = [\"cast\"]\nshape = [\"4x8\"]\nout = [\"te_current\"]\n",
    )
    .unwrap();
    assert!(here.expect("run smoke --quiet --out run", 0).contains("1 case ") || here.at("run/rows.csv").exists());
    let sweeps = here.expect("list sweeps", 0);
    assert!(sweeps.contains("mine") && sweeps.contains("standard"), "{sweeps}");
}

#[test]
fn nvrtc_is_found_where_pip_put_it() {
    let here = Anywhere::new();
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools/nvrtc/nvidia/cu13/lib");
    if !installed.exists() {
        eprintln!("no NVRTC in .tools: `make setup` puts it there");
        return;
    }
    // As in a virtual environment: bin/qassay beside lib/python3.x/site-packages.
    let folder = here.folder.path().join("lib/python3.11/site-packages/nvidia/cu13/lib");
    std::fs::create_dir_all(&folder).unwrap();
    for entry in std::fs::read_dir(&installed).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            std::fs::copy(&path, folder.join(path.file_name().unwrap())).unwrap();
        }
    }
    assert!(here.expect("compile --arch sm_90a --filter cast", 0).contains("cast"));
}
