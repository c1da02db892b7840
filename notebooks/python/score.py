"""How many wrong kernels `qassay assay` names: the `note` of each bundle is the truth, as wrong_kernels.py writes it.

    python3 wrong_kernels.py DIR [SEED]; python3 score.py QASSAY DIR…

A right kernel has to pass; a fault counts as named when the first finding, or one that would have written the same, is it; what is not
in the catalogue has to be answered by no finding at all.
"""

import glob
import json
import os
import struct
import subprocess
import sys
import time
from collections import Counter


def note(path):
    with open(path, "rb") as f:
        (size,) = struct.unpack("<Q", f.read(8))
        return json.loads(f.read(size))["__metadata__"]["note"]


def main():
    program, folders = sys.argv[1], sys.argv[2:]
    files = sorted(f for d in folders for f in glob.glob(os.path.join(d, "*.safetensors")))
    started = time.time()
    run = subprocess.run([program, "assay", "--json", *files], capture_output=True, text=True, check=False)
    seconds = time.time() - started
    answers = [json.loads(line) for line in run.stdout.splitlines()]
    if len(answers) != len(files):
        sys.exit(f"{len(answers)} answers for {len(files)} bundles: {run.stderr}")
    counts, wrong, classes = Counter(), [], set()
    for path, a in zip(files, answers):
        truth = note(path)
        kind = truth.split(":")[0]
        names = [d["variant"] for d in a["diagnosis"]]
        same_class = any(x.split(":")[0] == kind and " + " not in x for x in names)
        if kind == "right":
            counts["right"] += 1
            good = a["verdict"] == "pass" and not names
            counts["right passed"] += good
        elif kind == "unknown":
            counts["foreign"] += 1
            good = a["verdict"] == "fail" and not names
            counts["foreign unknown"] += good
        else:
            classes.add(kind)
            good = truth in names
            counts["faults"] += 1
            counts["caught"] += a["verdict"] == "fail"
            counts["class"] += same_class
            counts["variant"] += good
            counts["first"] += names[:1] == [truth]
            counts["alone"] += names == [truth]
        if not good:
            wrong.append(f"  {truth}: {a['verdict']}, {names or 'unknown'}; {os.path.basename(path)}")
    share = lambda part, whole: f"{100 * counts[part] / max(counts[whole], 1):.1f} % ({counts[part]} of {counts[whole]})"
    print(f"{len(files)} bundles, {len(classes)} classes, {seconds:.0f} s")
    print(f"right kernels that pass: {share('right passed', 'right')}")
    print(f"faults caught: {share('caught', 'faults')}")
    print(f"named in class: {share('class', 'faults')}")
    print(f"named in variant: {share('variant', 'faults')}")
    print(f"of these as the first answer: {share('first', 'faults')}; alone: {share('alone', 'faults')}")
    print(f"not in the catalogue, answered unknown: {share('foreign unknown', 'foreign')}")
    print("\n".join(wrong))


if __name__ == "__main__":
    main()
