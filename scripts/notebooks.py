#!/usr/bin/env python3
"""Executes the Rust notebooks for real and compares what they print with what is committed.

    scripts/notebooks.py            execute all (or those named), fail on anything wrong or different
    scripts/notebooks.py --accept   execute and write the outputs into the notebooks: the only act that changes them

evcxr leaves a panic, or an Err, as text and goes on; nbconvert calls that success. So this looks for it, and wants of each notebook
a verdict of its own (application/vnd.qassay.verdict+json, shown by `Claims`), figures with something in them, and numbers that are
the committed ones. Each notebook has its own EVCXR_TMPDIR (two kernels in one directory build over each other), kept between runs.
"""

import argparse
import json
import os
import re
import shutil
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / ".tools"
VERDICT = "application/vnd.qassay.verdict+json"
LIMIT_ONE, LIMIT_ALL = 300, 1200


def text_of(output):
    """What a person would read of an output."""
    if output.output_type == "stream":
        return output.text
    if output.output_type == "error":
        return "\n".join([output.ename, output.evalue, *output.traceback])
    data = output.get("data", {})
    return data.get("text/plain", "") or json.dumps(data.get(VERDICT, ""))


def noise(cell_outputs):
    """Outputs without what differs from run to run: progress lines and what cargo says while it builds."""
    kept = []
    for output in cell_outputs:
        if output.output_type == "stream":
            lines = [line.split("\r")[-1] for line in output.text.splitlines()]
            lines = [line for line in lines if line.strip() and not re.match(r"\s*(Compiling|Updating|Finished|Locking|Adding|Blocking|Downloading|Downloaded|Checking) ", line)]
            if not lines:
                continue
            output.text = "\n".join(lines) + "\n"
        kept.append(output)
    return kept


def problems(nb):
    """What is wrong with an executed notebook, by cell."""
    found, verdicts = [], []
    for number, cell in enumerate(nb.cells):
        if cell.cell_type != "code":
            continue
        before = nb.cells[number - 1] if number else None
        if before is None or before.cell_type != "markdown":
            found.append(f"cell {number}: no prose above it")
        for output in cell.outputs:
            text = text_of(output)
            if output.output_type == "error" or "panicked at" in text:
                found.append(f"cell {number}: {text.strip()[:600]}")
            if output.output_type == "stream" and output.name == "stderr" and text.strip():
                found.append(f"cell {number}: on stderr: {text.strip()[:600]}")
            html = output.get("data", {}).get("text/html", "") if output.output_type != "stream" else ""
            for svg in re.findall(r"<svg.*?</svg>", html, re.S):
                if len(re.findall(r"<(circle|rect|polyline|path|polygon|text)\b", svg)) < 5:
                    found.append(f"cell {number}: an empty figure")
            if VERDICT in output.get("data", {}):
                verdicts.append((number, output.data[VERDICT]))
    if not verdicts:
        found.append(f"no verdict: the last cell has to show `Claims` ({VERDICT})")
    for number, verdict in verdicts:
        verdict = json.loads(verdict) if isinstance(verdict, str) else verdict
        if verdict.get("verdict") != "pass":
            failed = [c["claim"] for c in verdict.get("claims", []) if not c["holds"]]
            found.append(f"cell {number}: verdict {verdict.get('verdict')}: {failed}")
    return found


def plain(nb):
    """The text of each code cell's outputs: what is compared."""
    return [[text_of(o).strip() for o in c.get("outputs", [])] for c in nb.cells if c.cell_type == "code"]


def differences(old, new):
    found = []
    for number, (a, b) in enumerate(zip(plain(old), plain(new))):
        if a != b:
            lines = [(x, y) for p, q in zip(a, b) for x, y in zip(p.splitlines(), q.splitlines()) if x != y]
            found.append(f"code cell {number}: committed {lines[0][0]!r}, now {lines[0][1]!r}" if lines else f"code cell {number}: committed {len(a)} outputs, now {len(b)}")
    return found


def execute(path):
    nb = nbformat.read(path, as_version=4)
    tmp = TOOLS / "evcxr-tmp" / path.stem
    seed = TOOLS / "evcxr-tmp" / "seed"
    if not tmp.exists() and seed.exists():
        shutil.copytree(seed, tmp, symlinks=True)
    tmp.mkdir(parents=True, exist_ok=True)
    os.environ["EVCXR_TMPDIR"] = str(tmp)
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    client = NotebookClient(nb, timeout=LIMIT_ONE, kernel_name="rust", resources={"metadata": {"path": str(path.parent)}}, record_timing=False)
    client.execute()
    if not seed.exists():
        shutil.copytree(tmp, seed, symlinks=True)
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.outputs = noise(cell.outputs)
    return nb


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--accept", action="store_true", help="write the outputs into the notebooks")
    parser.add_argument("names", nargs="*", help="notebooks by the start of their name; all without")
    args = parser.parse_args()
    bin_dir = TOOLS / "evcxr" / "bin"
    os.environ["PATH"] = f"{bin_dir}:{os.environ['PATH']}"
    os.environ["JUPYTER_PATH"] = str(TOOLS / "jupyter")
    os.environ["JUPYTER_DATA_DIR"] = str(TOOLS / "jupyter")
    os.environ["IPYTHONDIR"] = str(TOOLS / "ipython")
    paths = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
    if args.names:
        paths = [p for p in paths if any(p.name.startswith(n) for n in args.names)]
    if not paths:
        sys.exit("no notebook to execute: name one of notebooks/*.ipynb by its start")
    failed, started = 0, time.monotonic()
    for path in paths:
        begun = time.monotonic()
        try:
            nb = execute(path)
            wrong = problems(nb)
            if args.accept:
                if not wrong:
                    for cell in nb.cells:
                        cell.get("metadata", {}).pop("execution", None)
                    nb.metadata = {"kernelspec": nb.metadata.get("kernelspec", {"display_name": "Rust", "language": "rust", "name": "rust"}), "language_info": {"name": "rust", "file_extension": ".rs", "mimetype": "text/rust"}}
                    nbformat.write(nb, path)
            else:
                wrong += differences(nbformat.read(path, as_version=4), nb)
        except (CellExecutionError, CellTimeoutError) as e:
            wrong = [str(e).strip()[-1200:]]
        seconds = time.monotonic() - begun
        if seconds > LIMIT_ONE:
            wrong.append(f"took {seconds:.0f} s, more than {LIMIT_ONE}")
        failed += bool(wrong)
        print(f"{'FAILED' if wrong else 'ok    '} {path.name} {seconds:.0f} s", flush=True)
        for line in wrong:
            print(f"       {line}", flush=True)
    seconds = time.monotonic() - started
    if seconds > LIMIT_ALL:
        print(f"all took {seconds:.0f} s, more than {LIMIT_ALL}")
        failed += 1
    print(f"notebooks: {len(paths) - failed} passed, {failed} failed in {seconds:.0f} s")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
