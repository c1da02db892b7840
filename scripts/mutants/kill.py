"""Runs the tests of a build with mutants (schemata.py).

    kill.py hits W BINARY...   which test reaches which mutant, and how long it takes: W/hits.jsonl
    kill.py kill W             for each mutant the tests that reach it, the likeliest first, until one is red: W/killed.jsonl

Both go on where they were stopped. `--limit` is the longest test, in seconds, that is listed; call `hits` again with a larger one for the rest.
"""

import argparse
import concurrent.futures as futures
import json
import os
import resource
import signal
import subprocess
import tempfile
import time


def lines(path):
    return [json.loads(line) for line in open(path)] if os.path.exists(path) else []


def run(work, binary, test, switch, limit, hits=None, processor=None):
    """Exit status, or None for one that took too long, and seconds. `processor`: seconds of processor time, as the machine may be shared."""

    def limited():
        if processor:
            resource.setrlimit(resource.RLIMIT_CPU, (int(processor), int(processor) + 1))

    tree = os.path.join(work, "tree")
    env = os.environ | {"QASSAY_MUTANT": str(switch), "CARGO_MANIFEST_DIR": tree, "RUST_BACKTRACE": "0"}
    if hits:
        env["QASSAY_HITS"] = hits
    started = time.time()
    process = subprocess.Popen(
        [binary, "--exact", test],
        cwd=tree,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=limited,
    )
    try:
        status = process.wait(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        status = None
    return status, time.time() - started


def hits(args):
    path = os.path.join(args.work, "hits.jsonl")
    had = {(d["binary"], d["test"]) for d in lines(path) if d["status"] is not None or d["limit"] >= args.limit}
    tests = []
    for binary in map(os.path.abspath, args.binaries):
        listed = subprocess.run([binary, "--list", "--format", "terse"], capture_output=True, text=True, check=True).stdout
        tests += [(binary, name) for name in (line.removesuffix(": test") for line in listed.splitlines() if line.endswith(": test"))]

    def one(test):
        with tempfile.NamedTemporaryFile() as told:
            status, seconds = run(args.work, *test, "hits", args.limit, told.name)
            reached = sorted({int(x) for x in open(told.name).read().split()})
        return {"binary": test[0], "test": test[1], "status": status, "seconds": seconds, "hits": reached, "limit": args.limit}

    red = 0
    with futures.ThreadPoolExecutor(args.jobs) as pool, open(path, "a") as out:
        for found in pool.map(one, [t for t in tests if t not in had]):
            out.write(json.dumps(found) + "\n")
            out.flush()
            if found["status"] != 0:
                red += 1
                print("took too long" if found["status"] is None else "red without a mutant", found["test"], flush=True)
    print(f"{len(tests)} tests, {red} of which tell nothing")


def kill(args):
    path = os.path.join(args.work, "killed.jsonl")
    had = {d["id"] for d in lines(path) if d["caught"] or d.get("most", float("inf")) >= args.most}
    tests = list({(d["binary"], d["test"]): d for d in lines(os.path.join(args.work, "hits.jsonl")) if d["status"] == 0}.values())
    mutants = [m for m in json.load(open(os.path.join(args.work, "mutants.json"))) if m.get("written")]

    def module(mutant):
        return mutant["file"].removesuffix(".rs").replace("/", "::").removesuffix("::mod")

    def one(mutant):
        # Beside the code first where it is cheap, then the cheapest.
        room = module(mutant)
        near = lambda d: 0.2 if d["test"].startswith(room + "::") else 0.5 if d["test"].startswith(room.split("::")[0] + "::") else 1.0
        mine = sorted((d for d in tests if mutant["id"] in d["hits"]), key=lambda d: d["seconds"] * near(d))
        spent = 0.0
        for d in mine:
            spent += d["seconds"]
            if spent > args.most:
                return {"id": mutant["id"], "caught": None, "tests": len(mine), "most": args.most}
            status, _ = run(args.work, d["binary"], d["test"], mutant["id"], 20 * d["seconds"] + 60, processor=5 * d["seconds"] + 5)
            if status != 0:
                return {"id": mutant["id"], "caught": d["test"], "tests": len(mine), "status": status}
        return {"id": mutant["id"], "caught": None, "tests": len(mine)}

    with futures.ThreadPoolExecutor(args.jobs) as pool, open(path, "a") as out:
        # As each ends: one that survives runs every test, and holds up none.
        for done in futures.as_completed([pool.submit(one, m) for m in mutants if m["id"] not in had]):
            out.write(json.dumps(done.result()) + "\n")
            out.flush()
    killed = {d["id"]: d["caught"] for d in lines(path)}
    caught = sum(c is not None for c in killed.values())
    for m in mutants:
        if killed.get(m["id"]) is None:
            print(f"{m['id']} {m['file']}:{m['line']} {m['where']}: {m['old']} → {m['new'] or 'deleted'}")
    print(f"{caught} of {len(killed)} caught")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["hits", "kill"])
    parser.add_argument("work")
    parser.add_argument("binaries", nargs="*")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--most", type=float, default=float("inf"), help="seconds of tests that a mutant gets; call again with more")
    parser.add_argument("--limit", type=float, default=60.0)
    args = parser.parse_args()
    hits(args) if args.what == "hits" else kill(args)


main()
