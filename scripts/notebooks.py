#!/usr/bin/env python3
"""Executes the notebooks for real and compares what they show with what is committed.

    scripts/notebooks.py [NAME...]           execute all (or those whose name begins so), fail on anything wrong or different
    scripts/notebooks.py --accept [NAME...]  execute and write the outputs into the notebooks: the only act that changes them
    scripts/notebooks.py --lab               open JupyterLab on them

evcxr leaves a panic, or an Err, as text and goes on; nbconvert calls that success. So this looks for it, and wants of each notebook
a verdict of its own (application/vnd.qassay.verdict+json), figures with something in them, and the numbers that are committed.
Each kernel has its own EVCXR_TMPDIR, because two in one folder build over each other: a copy of a seed that holds nothing but
the compiled library. The seed is kept between runs. A Rust kernel serves one notebook after the other: `:clear` gives each a process
and a state of its own, while the kernel keeps what it has read of the crates' sources, which is most of a notebook's time.
"""

import argparse
import base64
import concurrent.futures as futures
import json
import multiprocessing.util
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import nbformat
from jupyter_core.utils import run_sync
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / ".tools"
SEED = TOOLS / "evcxr-tmp" / "seed"
VERDICT = "application/vnd.qassay.verdict+json"
# Tag of cells whose outputs are of the machine that ran them: not compared.
MACHINE = "machine"
# Seconds for one notebook, for all of them.
LIMIT_ONE, LIMIT_ALL = 900, 2400
# Notebooks that are executed at once.
AT_ONCE = 4
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
CARGO_SAYS = re.compile(r"\s*(Compiling|Updating|Finished|Locking|Adding|Blocking|Downloading|Downloaded|Checking) ")
PROGRESS = re.compile(r"[█░]{40} \d+ of \d+ cases$")


def environment():
    """Kernels of this checkout alone: the Rust one beside the environment's Python."""
    evcxr = TOOLS / "evcxr" / "bin" / "evcxr_jupyter"
    if not evcxr.exists():
        sys.exit(f"no {evcxr.relative_to(ROOT)}: run scripts/evcxr.sh, which compiles it")
    spec = TOOLS / "jupyter" / "kernels" / "rust"
    spec.mkdir(parents=True, exist_ok=True)
    kernel = {"argv": [str(evcxr), "--control_file", "{connection_file}"], "display_name": "Rust", "language": "rust", "interrupt_mode": "message"}
    (spec / "kernel.json").write_text(json.dumps(kernel))
    folders = {"JUPYTER_PATH": "jupyter", "JUPYTER_DATA_DIR": "jupyter", "JUPYTER_CONFIG_DIR": "jupyter/config", "IPYTHONDIR": "ipython"}
    os.environ.update({name: str(TOOLS / folder) for name, folder in folders.items()})
    # Python notebooks import this tree's module and ask this tree's program.
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
    os.environ["PYTHONPATH"] = str(ROOT / "python")
    os.environ["QASSAY_BIN"] = str(target / "release" / "qassay")
    # The library is compiled once, and checked by the unit tests.
    os.environ.update({"CARGO_INCREMENTAL": "0", "CARGO_PROFILE_DEV_OVERFLOW_CHECKS": "false", "CARGO_PROFILE_DEV_DEBUG_ASSERTIONS": "false"})


def client(nb, path, folder, kernel=None):
    """What executes a notebook of `path`; evcxr builds in `folder`, with the versions of Cargo.lock. `kernel`: one that may run already."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "Cargo.lock", folder / "Cargo.lock")
    os.environ["EVCXR_TMPDIR"] = str(folder)
    where = {"metadata": {"path": str(path.parent)}}
    name = nb.metadata.kernelspec.name
    return NotebookClient(nb, km=kernel, timeout=LIMIT_ONE, kernel_name=name, resources=where, record_timing=False)


class Kernel:
    """A Rust kernel and its folder. It serves one notebook after the other."""

    def __init__(self, folder, nb, path):
        self.folder, self.last = folder, None
        self.manager = client(nb, path, folder).create_kernel_manager()

    def execute(self, nb, path):
        """`:clear` first. Then Cargo.lock is there again: a kernel that starts builds a crate without dependencies, and cargo forgets the versions."""
        clear = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(":clear")], metadata=nb.metadata)
        for one in (clear, nb):
            self.quiet()
            self.last = client(one, path, self.folder, self.manager)
            self.last.execute()

    def quiet(self):
        """Ends the channels of the last client."""
        if self.last is not None and self.last.kc is not None:
            self.last.kc.stop_channels()
        self.last = None

    def close(self):
        self.quiet()
        if self.manager.has_kernel:
            run_sync(self.manager.shutdown_kernel)(now=True)


class Lane:
    """The Rust kernel of this process, in a copy of the seed."""

    kernel = None

    @classmethod
    def execute(cls, nb, path):
        if cls.kernel is None:
            folder = SEED.with_name(f"lane-{os.getpid()}")
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(SEED, folder, symlinks=True)
            cls.kernel = Kernel(folder, nb, path)
            multiprocessing.util.Finalize(None, cls.close, exitpriority=1)
        try:
            cls.kernel.execute(nb, path)
        except (CellTimeoutError, DeadKernelError):
            cls.close()
            raise

    @classmethod
    def close(cls):
        kernel, cls.kernel = cls.kernel, None
        if kernel is not None:
            kernel.close()
            shutil.rmtree(kernel.folder, ignore_errors=True)


def compile_library(path):
    """Brings the seed up to date by the first cell of a notebook, the one with `:dep`. Nothing to do takes a few seconds."""
    begun, used = time.monotonic(), processor()
    nb = nbformat.read(path, as_version=4)
    nb.cells = [cell for cell in nb.cells if cell.cell_type == "code"][:1]
    kernel = Kernel(SEED, nb, path)
    kernel.execute(nb, path)
    kernel.close()
    print(f"library in {time.monotonic() - begun:.0f} s, {processor() - used:.0f} s of processor time", flush=True)


def execute(path):
    """The notebook with new outputs, without what a build says and what progress leaves."""
    nb = nbformat.read(path, as_version=4)
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
            cell.metadata.pop("execution", None)
    folder = SEED.with_name(path.stem)
    try:
        if nb.metadata.kernelspec.name == "rust":
            Lane.execute(nb, path)
        else:
            client(nb, path, folder).execute()
    except CellExecutionError:
        pass  # The cell's outputs say it; `problems` finds them.
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.outputs = [o for o in map(settled, cell.outputs) if o]
    return nb


def settled(output):
    """An output as it stands at the end: a line that was drawn over is gone, and so are progress and what cargo said. None if nothing is left."""
    if output.output_type != "stream":
        return output
    lines = [line.rstrip("\r").split("\r")[-1] for line in output.text.split("\n")]
    lines = [line for line in lines if line.strip() and not CARGO_SAYS.match(line) and not PROGRESS.match(line)]
    output.text = "\n".join(lines) + "\n"
    return output if lines else None


def html_of(output):
    """The HTML of an output, with its images as the SVG they are."""
    svg = lambda m: base64.b64decode(m[1]).decode()
    return re.sub(r'<img[^>]*src="data:image/svg\+xml;base64,([^"]*)"[^>]*>', svg, output.get("data", {}).get("text/html", ""))


def plain(output):
    """What a person reads of an output: its text, and the text of its HTML and of the figures in it."""
    if output.output_type == "stream":
        return output.text
    if output.output_type == "error":
        return "\n".join([output.ename, output.evalue, *output.traceback])
    html = re.sub(r"<style>.*?</style>", "", html_of(output), flags=re.S)
    html = re.sub(r"\s*<[^>]*>\s*", "\n", html)
    # A reason ends with a diagnosis, which searches for a limited time: what a slow machine finds is not what a fast one finds.
    html = re.sub(r"; diagnosis: .*", "", html)
    return "\n".join([output.data.get("text/plain", ""), html, json.dumps(output.data.get(VERDICT, ""), sort_keys=True)])


def problems(nb):
    """What is wrong with an executed notebook, by cell."""
    found, verdicts = [], []
    deps = [line for cell in nb.cells if cell.cell_type == "code" for line in cell.source.splitlines() if line.startswith(":dep ")]
    if len(deps) > 1:
        # evcxr asks cargo for each by itself, which forgets the locked versions of the others: the library would be compiled again, with newer ones.
        found.append(f"more than one :dep: {deps[1]}")
    for number, cell in enumerate(nb.cells):
        if cell.cell_type != "code":
            continue
        if number == 0 or nb.cells[number - 1].cell_type != "markdown":
            found.append(f"cell {number}: no prose above it")
        for output in cell.outputs:
            text = plain(output)
            if output.output_type == "error" or "panicked at" in text or text.startswith("Error: "):
                found.append(f"cell {number}: {COLOURS.sub('', text).strip()[:1200]}")
            elif output.output_type == "stream" and output.name == "stderr":
                found.append(f"cell {number}: on stderr: {text.strip()[:600]}")
            data = output.get("data", {})
            for svg in re.findall(r"<svg.*?</svg>", html_of(output), re.S):
                if len(re.findall(r"<(circle|rect|polyline|path|polygon)\b", svg)) < 5 or "NaN" in re.sub(r"<text.*?</text>", "", svg, flags=re.S):
                    found.append(f"cell {number}: an empty figure")
            if VERDICT in data:
                verdicts.append((number, data[VERDICT]))
    if not verdicts:
        found.append(f"no verdict: the last cell has to show `Claims` ({VERDICT})")
    for number, verdict in verdicts:
        verdict = json.loads(verdict) if isinstance(verdict, str) else verdict
        if verdict.get("verdict") != "pass":
            found.append(f"cell {number}: verdict {verdict.get('verdict')}: {[c['claim'] for c in verdict['claims'] if not c['holds']]}")
    return found


def differences(old, new):
    """Where two executions of a notebook say something else."""
    found = []
    compared = [[c for c in nb.cells if c.cell_type == "code" and MACHINE not in c.metadata.get("tags", [])] for nb in (old, new)]
    texts = [[[plain(o).strip() for o in c.outputs] for c in cells] for cells in compared]
    for number, (a, b) in enumerate(zip(*texts)):
        lines = [(x, y) for p, q in zip(a, b) for x, y in zip(p.splitlines(), q.splitlines()) if x != y]
        if lines:
            found.append(f"code cell {number}: committed {lines[0][0]!r}, now {lines[0][1]!r}, {len(lines)} lines differ")
        elif a != b:
            found.append(f"code cell {number}: committed {len(a)} outputs of {sum(map(len, a))} characters, now {len(b)} of {sum(map(len, b))}")
    return found


def run(path, accept):
    """What is wrong with a notebook; writes its outputs when they are to be accepted."""
    try:
        nb = execute(path)
    except (CellTimeoutError, DeadKernelError) as e:
        return [str(e).strip()[-1200:]]
    wrong = problems(nb)
    if not accept:
        return wrong + differences(nbformat.read(path, as_version=4), nb)
    if not wrong:
        nb.metadata.language_info = {"name": nb.metadata.kernelspec.language}
        nbformat.write(nb, path)
    return wrong


def measured(path, accept):
    """What is wrong with a notebook, and its seconds."""
    begun = time.monotonic()
    wrong = run(path, accept)
    return wrong, time.monotonic() - begun


def processor():
    """Seconds of processor time of all kernels of this process so far, and of what they started."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--accept", action="store_true", help="write the outputs into the notebooks")
    parser.add_argument("--lab", action="store_true", help="open JupyterLab on the notebooks")
    parser.add_argument("names", nargs="*", help="notebooks by the start of their name; all without")
    args = parser.parse_args()
    environment()
    if args.lab:
        os.environ["EVCXR_TMPDIR"] = str(TOOLS / "evcxr-tmp" / "lab")
        os.execv(sys.executable, [sys.executable, "-m", "jupyterlab", f"--notebook-dir={ROOT / 'notebooks'}"])
    paths = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb")) + sorted((ROOT / "notebooks" / "python").glob("*.ipynb"))
    paths = [p for p in paths if not args.names or p.name.startswith(tuple(args.names))]
    if not paths:
        sys.exit(f"no notebook begins with {' or '.join(args.names)}: see notebooks/")
    failed, started = 0, time.monotonic()
    names = {p: nbformat.read(p, as_version=4).metadata.kernelspec.name for p in paths}
    rust = [p for p in paths if names[p] == "rust"]
    if rust:
        compile_library(rust[0])
    if len(rust) < len(paths) and not Path(os.environ["QASSAY_BIN"]).exists():
        subprocess.run(["cargo", "build", "--release", "--quiet", "--bin", "qassay"], cwd=ROOT, check=True)
    # A cell waits for rustc, which is one thread for most of its time. The last ones take longest.
    with futures.ProcessPoolExecutor(min(os.cpu_count() or 1, AT_ONCE)) as pool:
        running = {pool.submit(measured, path, args.accept): path for path in reversed(paths)}
        for done in futures.as_completed(running):
            wrong, seconds = done.result()
            if seconds > LIMIT_ONE:
                wrong.append(f"took more than {LIMIT_ONE} s")
            failed += bool(wrong)
            said = f"{'FAILED' if wrong else 'ok    '} {running[done].name} {seconds:.0f} s"
            print(said, *wrong, sep="\n       ", flush=True)
    seconds = time.monotonic() - started
    print(f"notebooks: {len(paths) - failed} passed, {failed} failed in {seconds:.0f} s, {processor():.0f} s of processor time")
    if seconds > LIMIT_ALL:
        sys.exit(f"all took more than {LIMIT_ALL} s")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
