"""Right results of every kind, judged by `qassay assay`: none may fail.

    python3 tests/clean/run.py --seed 1 --count 20000 --jobs 2 --qassay target/release/qassay

The kernels are written here from the contract (data/bundles/README.md) and from what is known of the hardware: every rounding is one that a real
kernel makes. A batch is a function of (seed, family, number), so an alarm names the command that makes its file again. Exit status 1 when a
result fails, is refused or is not answered, or when more than --suspects of a million are suspect.
"""

import argparse
import collections
import concurrent.futures as futures
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
import zlib

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
import numpy as np  # noqa: E402

# Family: how many of a hundred results.
FAMILIES = {"plain": 20, "scaled": 30, "blocks": 12, "integers": 10, "mixed": 10, "grouped": 5, "casts": 5, "pointwise": 4, "norms": 4}
# Results in a task, and the numbers of batches kept for it: a task is short, so that the last ones do not run alone for long.
RUN, BATCHES = 200, 1000


def results(seed, family, number):
    """Batch `number` of a family."""
    rng = np.random.default_rng([seed, zlib.crc32(family.encode()), number])
    return importlib.import_module(family).batches(rng)


def judged(qassay, files):
    """One answer a file, by path; what the program said on standard error. What is left without a word is asked again in halves."""
    run = subprocess.run([qassay, "assay", "--json", *files], capture_output=True, text=True, env=os.environ | {"RAYON_NUM_THREADS": "1"})
    answers = {}
    for line in run.stdout.splitlines():
        try:
            answer = json.loads(line)
            answers[answer["file"]] = answer
        except (ValueError, KeyError):
            pass
    # A refusal names its file; where none does, the call itself died.
    lines = run.stderr.replace("qassay: ", "").splitlines()
    refused = {path: line for line in lines if (path := line.split(": ")[0]).endswith(".safetensors")}
    left = [f for f in files if f not in answers and f not in refused]
    said = "".join(line + "\n" for line in refused.values())
    if not left or len(files) == 1:
        return answers, said + "".join(f"{f}: {' '.join(run.stderr.split())}\n" for f in left)
    for part in (left[::2], left[1::2]):
        more, words = judged(qassay, part) if part else ({}, "")
        answers, said = answers | more, said + words
    return answers, said


def verdict(answer):
    """fail, suspect, no_power, pass, or refused. A suspect is said so by its own verdict, by a field, or by a reason that names the probable bound."""
    if answer is None or "verdict" not in answer:
        return "refused"
    words = answer.get("reason") or ""
    if answer["verdict"] in ("pass", "no_power") and (answer.get("suspect") or "suspect" in words or "probable bound" in words):
        return "suspect"
    return answer["verdict"]


def work(task):
    """A run of batches of one family until `count` results are judged or the time is over."""
    seed, family, first, count, qassay, folder, end = task
    tally, alarms, elements, spent = collections.Counter(), [], 0, collections.Counter()
    number, done = first, 0
    with tempfile.TemporaryDirectory(dir=folder) as held:
        while done < count and time.time() < end:
            start, paths, names = time.time(), [], {}
            while done < count:
                for variant, result in enumerate(results(seed, family, number)):
                    wrote = result.write(f"{held}/{family}-{number}-{variant}")
                    names |= {p: result.label for p in wrote}
                    elements += result.elements() * len(wrote)
                    paths += wrote
                    done += len(wrote)
                number += 1
            spent["made"] += time.time() - start
            start = time.time()
            answers, said = judged(qassay, paths)
            spent["judged"] += time.time() - start
            for path in paths:
                answer = answers.get(path)
                of = verdict(answer)
                tally[of] += 1
                if of not in ("pass", "no_power"):
                    name = os.path.basename(path).removesuffix(".safetensors")
                    why = [line for line in said.splitlines() if line.startswith(path)] if answer is None else [answer.get("reason", "")]
                    alarms.append({"verdict": of, "name": name, "kernel": names[path], "why": " ".join(why).replace(f"{path}: ", "")[:400], "seed": seed,
                                   "ratio": answer and answer.get("bound_ratio"), "model": answer and answer.get("model")})
                os.unlink(path)
    return family, tally, alarms, elements, spent


def single(args):
    """One result, or one batch, written to --keep and judged."""
    family, number, *rest = args.only.split("-")
    os.makedirs(args.keep, exist_ok=True)
    paths = []
    for variant, result in enumerate(results(args.seed, family, int(number))):
        if not rest or variant == int(rest[0]):
            paths += result.write(f"{args.keep}/{family}-{number}-{variant}", int(rest[1]) if len(rest) > 1 else None)
            print(result.label, {k: f"{v.dtype}{list(v.shape[1:])}" for k, v in result.tensors.items()})
    answers, said = judged(args.qassay, paths)
    print(said, end="")
    bad = 0
    for p in paths:
        of = verdict(answers.get(p))
        bad += of in ("fail", "refused", "suspect")
        print(p, of, (answers.get(p) or {}).get("reason"))
    return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--qassay", default="target/release/qassay")
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--suspects", type=float, default=0.0, help="allowed suspects of a million results")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after this time, with fewer results")
    parser.add_argument("--part", default="1/1", help="I/N: only the I-th of N parts of the tasks, so that several calls or machines share one seed")
    parser.add_argument("--alarms", help="write every alarm to this file, a JSON object a line")
    parser.add_argument("--only", help="FAMILY-BATCH[-VARIANT[-ITEM]]: write this to --keep and judge it")
    parser.add_argument("--keep", default="kept")
    args = parser.parse_args()
    if args.only:
        return single(args)
    chosen = args.families.split(",")
    total, start = sum(FAMILIES[f] for f in chosen), time.time()
    tasks = []
    for f in chosen:
        left, first = max(1, args.count * FAMILIES[f] // total), 0
        while left > 0:
            part = min(left, RUN)
            tasks.append((args.seed, f, first, part, os.path.abspath(args.qassay), "/dev/shm" if os.path.isdir("/dev/shm") else None, start + args.seconds))
            left, first = left - part, first + BATCHES
    # What is judged depends on seed and count alone, not on the number of jobs.
    tasks.sort(key=lambda t: (t[2], t[1]))
    part, parts = map(int, args.part.split("/"))
    if not 1 <= part <= parts:
        parser.error(f"--part is {args.part}, expected I/N with 1 <= I <= N")
    tasks = tasks[part - 1 :: parts]
    tally, alarms, elements, spent, said = collections.defaultdict(collections.Counter), [], 0, collections.Counter(), start
    with futures.ProcessPoolExecutor(args.jobs) as pool:
        waiting, tasks = set(), iter(tasks)
        while True:
            while len(waiting) < args.jobs and time.time() - start < args.seconds and (task := next(tasks, None)):
                waiting.add(pool.submit(work, task))
            if not waiting:
                break
            done, waiting = futures.wait(waiting, return_when=futures.FIRST_COMPLETED)
            for d in done:
                family, counts, found, n, took = d.result()
                tally[family] += counts
                alarms += found
                if args.alarms and found:
                    with open(args.alarms, "a") as f:
                        f.writelines(json.dumps(a) + "\n" for a in found)
                elements += n
                spent += took
            if time.time() - said > 30:
                said = time.time()
                sums = sum(tally.values(), collections.Counter())
                print(f"{said - start:.0f} s: {sums.total()} results, {dict(sums)}", file=sys.stderr, flush=True)
    report(args, tally, alarms, elements, spent, time.time() - start)
    sums = sum(tally.values(), collections.Counter())
    allowed = args.suspects * sums.total() / 1e6
    return 1 if sums["fail"] or sums["refused"] or sums["suspect"] > allowed else 0


def report(args, tally, alarms, elements, spent, seconds):
    kinds = ["pass", "no_power", "suspect", "fail", "refused"]
    kinds += sorted({k for counts in tally.values() for k in counts} - set(kinds))
    print(f"{'family':12}" + "".join(f"{k:>10}" for k in kinds))
    for family, counts in sorted(tally.items()):
        print(f"{family:12}" + "".join(f"{counts[k]:10}" for k in kinds))
    for a in alarms[:40]:
        print(f"{a['verdict']} {a['name']}: {a['kernel']}: {a['why'][:160]}\n    python3 tests/clean/run.py --seed {a['seed']} --only {a['name']} --qassay {args.qassay}")
    if len(alarms) > 40:
        print(f"... and {len(alarms) - 40} more alarms")
    sums = sum(tally.values(), collections.Counter())
    print(f"{sums.total()} right results ({elements} elements) of {len(tally)} families, seed {args.seed}: {sums['fail']} fail, {sums['refused']} refused, "
          f"{sums['suspect']} suspect, {sums['no_power']} without power, {sums['pass']} pass; {seconds:.0f} s, {sums.total() / seconds:.0f} a second "
          f"(made {spent['made']:.0f} s, judged {spent['judged']:.0f} s of processes)")


if __name__ == "__main__":
    sys.exit(main())
