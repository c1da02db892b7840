"""Writes the crate with many mutants in it, each behind a switch: QASSAY_MUTANT=17 in the environment.

    schemata.py draw W --seed S --count N    W/mutants.json: N mutants of this checkout, drawn by a seed
    schemata.py write W                      W/tree/src with those that compile; W/tree is a worktree of the same commit

`write` asks `cargo check` and leaves out what it refuses, until it refuses nothing.
"""

import argparse
import json
import os
import random
import re
import subprocess

from operators import COMMENTS, Finder, sources

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ALLOW = "#![allow(warnings, overflowing_literals, arithmetic_overflow, unconditional_panic, unconditional_recursion, clippy::all)]\n"
#: What the mutants ask. With QASSAY_MUTANT=hits none is on, and each that is asked writes its number to the file QASSAY_HITS.
SWITCH = """
static MUTANT_ON: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(u32::MAX);
static MUTANT_HIT: [std::sync::atomic::AtomicBool; 65536] = [const { std::sync::atomic::AtomicBool::new(false) }; 65536];
#[inline(always)]
pub(crate) fn mutant(n: u32) -> bool {
    let on = MUTANT_ON.load(std::sync::atomic::Ordering::Relaxed);
    on == n || (on >= u32::MAX - 1 && mutant_slow(n))
}
#[cold]
#[inline(never)]
fn mutant_slow(n: u32) -> bool {
    use std::io::Write;
    use std::sync::atomic::Ordering::Relaxed;
    if MUTANT_ON.load(Relaxed) == u32::MAX {
        let on = std::env::var("QASSAY_MUTANT").ok();
        let on = if on.as_deref() == Some("hits") { u32::MAX - 1 } else { on.and_then(|v| v.parse().ok()).unwrap_or(0) };
        MUTANT_ON.store(on, Relaxed);
        return mutant(n);
    }
    if !MUTANT_HIT[n as usize].swap(true, Relaxed)
        && let Some(path) = std::env::var_os("QASSAY_HITS")
        && let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(path)
    {
        let _ = file.write_all(format!("{n}\\n").as_bytes());
    }
    false
}
"""


class Writer:
    """The text of a file with some of its mutants, and where each stands: (id, first byte, end, whether it is the mutant alone)."""

    def __init__(self, root, text, mutants):
        self.text, self.out, self.at, self.spans = text, [], 0, []
        self.mutants = {}
        for m in mutants:
            self.mutants.setdefault((m["start"], m["end"], m["node"]), []).append(m)
        self.node(root)

    def put(self, text):
        text = text.encode() if isinstance(text, str) else text
        self.out.append(text)
        self.at += len(text)

    def new(self, mutant, text):
        start = self.at
        self.put(text)
        self.spans.append((mutant["id"], start, self.at, True))

    def between(self, start, children, end):
        for child in children:
            self.put(self.text[start : child.start_byte])
            self.node(child)
            start = child.end_byte
        self.put(self.text[start:end])

    def node(self, node):
        mutants = self.mutants.get((node.start_byte, node.end_byte, node.type), [])
        start = self.at
        if not mutants:
            self.between(node.start_byte, node.children, node.end_byte)
        elif mutants[0]["kind"] == "function":
            self.body(node, mutants)
        elif mutants[0]["kind"] in ("arm", "guard"):
            self.pattern(node, mutants)
        else:
            self.expression(node, mutants)
        self.spans += [(m["id"], start, self.at, False) for m in mutants]

    def body(self, node, mutants):
        """{ if mutant(17) { return …; } … }"""
        children = list(node.children)
        first = 1
        while children[first].type in ("inner_attribute_item", *COMMENTS):
            first += 1
        self.put(self.text[node.start_byte : children[first - 1].end_byte] + b"\n")
        for m in mutants:
            self.put(f"if crate::mutant({m['id']}) {{ ")
            self.new(m, f"return {m['new']};")
            self.put(" } ")
        self.between(children[first - 1].end_byte, children[first:], node.end_byte)

    def pattern(self, node, mutants):
        """pattern if !mutant(17) && (mutant(18) || (guard))"""
        guard = node.child_by_field_name("condition")
        before = node.children if guard is None else node.children[: node.children.index(guard)]
        self.between(node.start_byte, before, before[-1].end_byte)
        self.put(" if " if guard is None else " ")
        start = self.at
        on = [m["id"] for m in mutants if m["new"] == "true"]
        off = [m["id"] for m in mutants if m["new"] != "true"]
        self.put("".join(f"!crate::mutant({i}) && " for i in off))
        if guard is None:
            self.put("true")
        else:
            self.put("(" + "".join(f"crate::mutant({i}) || " for i in on) + "(")
            self.node(guard)
            self.put("))")
        self.spans += [(i, start, self.at, True) for i in on + off]

    def expression(self, node, mutants):
        """(if mutant(17) { a − b } else { a + b })"""
        self.put("(")
        for m in mutants:
            self.put(f"if crate::mutant({m['id']}) {{ ")
            if m["kind"] == "unary":
                operand = node.children[1]
                self.new(m, self.text[operand.start_byte : operand.end_byte])
            else:
                sign = node.child_by_field_name("operator")
                left, right = self.text[node.start_byte : sign.start_byte], self.text[sign.end_byte : node.end_byte]
                self.new(m, left + m["new"].encode() + right)
            self.put(" } else ")
        self.put("{ ")
        self.between(node.start_byte, node.children, node.end_byte)
        self.put(" })")


def write(tree, mutants):
    """Writes every file of the rooms; the spans of each by its path from the tree."""
    spans = {}
    for path, text in sources(os.path.join(ROOT, "src")).items():
        mine = [m for m in mutants if m["file"] == path and m["written"]]
        made = Writer(Finder(path, text).root, text, mine)
        put(os.path.join(tree, "src", path), b"".join(made.out))
        spans[os.path.join("src", path)] = made.spans
    lib = open(os.path.join(ROOT, "src/lib.rs")).read()
    inner = re.search(r"^#!\[", lib, re.M).start()
    put(os.path.join(tree, "src/lib.rs"), (lib[:inner] + ALLOW + lib[inner:] + SWITCH).encode())
    return spans


def put(path, text):
    if open(path, "rb").read() != text:
        with open(path, "wb") as out:
            out.write(text)


def refused(tree, spans):
    """The mutants that `cargo check` does not take, with its words; errors in no mutant."""
    command = ["cargo", "check", "--release", "--lib", "--features", "notebook", "--message-format", "json"]
    run = subprocess.run(command, cwd=tree, stdout=subprocess.PIPE, text=True)
    found, others = {}, []
    for line in run.stdout.splitlines():
        told = json.loads(line)
        if told.get("reason") != "compiler-message" or told["message"]["level"] != "error" or not told["message"]["spans"]:
            continue
        message = told["message"]
        ids = culprits(message["spans"], spans)
        found |= {i: message["message"] for i in ids if i not in found}
        others += [] if ids else [message["rendered"]]
    return found, others


def culprits(places, spans):
    """The smallest mutant around an error, of its own text first; else those inside of it."""
    for chosen in ([p for p in places if p["is_primary"]], places):
        ids = set()
        for place in chosen:
            while place.get("expansion"):
                place = place["expansion"]["span"]
            start, end = place["byte_start"], place["byte_end"]
            around = [s for s in spans.get(place["file_name"], []) if s[1] <= start and end <= s[2]]
            around = [s for s in around if s[3]] or around
            ids |= {min(around, key=lambda s: s[2] - s[1])[0]} if around else set()
        if ids:
            return ids
    inside = lambda p: {s[0] for s in spans.get(p["file_name"], []) if p["byte_start"] <= s[1] and s[2] <= p["byte_end"]}
    return set().union(*map(inside, places))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["draw", "write"])
    parser.add_argument("work")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=340)
    args = parser.parse_args()
    path, tree = os.path.join(args.work, "mutants.json"), os.path.join(args.work, "tree")
    if args.what == "draw":
        every = [m for p, text in sources(os.path.join(ROOT, "src")).items() for m in Finder(p, text).mutants]
        random.Random(args.seed).shuffle(every)
        drawn = [m | {"id": n + 1, "written": not m["const"]} for n, m in enumerate(every[: args.count])]
        json.dump(drawn, open(path, "w"), indent=0)
        print(f"{len(every)} mutants; {len(drawn)} drawn, {sum(m['const'] for m in drawn)} of them in const code, which has no switch")
        return
    mutants = json.load(open(path))
    while True:
        found, others = refused(tree, write(tree, mutants))
        for m in mutants:
            if m["id"] in found:
                m |= {"written": False, "refused": found[m["id"]]}
        json.dump(mutants, open(path, "w"), indent=0)
        print(f"{sum(m['written'] for m in mutants)} written, {len(found)} more do not compile")
        if others:
            raise SystemExit("errors in no mutant:\n" + "\n".join(others[:3]))
        if not found:
            return


main()
