#!/usr/bin/env bash
# What a pull request runs: the tests with a report, `qassay check` where there are baselines, annotations of what failed, and a comment of at
# most 60,000 bytes in qassay-report/comment.md. Exit status: the first of tests and check that failed.
set -uo pipefail
report=qassay-report
mkdir -p "$report"

# shellcheck disable=SC2086 # several paths
python3 -m pytest ${TESTS:-.} --qassay-report "$report" --junit-xml "$report/tests.xml"
status=$?

drift=0
if [ -n "${CHECK:-}" ]; then
  # shellcheck disable=SC2086 # several sweeps
  qassay check $CHECK --quiet --junit "$report/check.xml" --markdown "$report/check.md"
  drift=$?
fi

python3 - "$report" "$status" "$drift" <<'PYTHON'
import csv, os, sys

report, status, drift = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rows = []
path = os.path.join(report, "assays.csv")
if os.path.exists(path):
    with open(path, newline="") as f:
        rows = list(csv.DictReader(f))
wrong = [r for r in rows if r["verdict"] != "pass"]


def escaped(text):
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


for r in wrong:
    place = r["test"].split("::")[0]
    print(f"::error file={escaped(place)},title=qassay {r['verdict']}::{escaped(r['test'] + ': ' + r['reason'])}")

lines = [f"## qassay: {len(rows) - len(wrong)} of {len(rows)} assays pass", ""]
lines.append(f"Tests: {'passed' if status == 0 else f'exit status {status}'}." + (f" Check: exit status {drift}." if drift else ""))
if wrong:
    lines += ["", "| test | verdict | what was found |", "|---|---|---|"]
    cell = lambda text: text.replace("|", "\\|").replace("\n", " ")
    lines += [f"| `{cell(r['test'])}` | {r['verdict']} | {cell(r['reason'])[:400]} |" for r in wrong]
check = os.path.join(report, "check.md")
if os.path.exists(check):
    with open(check, encoding="utf-8") as f:
        lines += ["", f.read()]
# GitHub refuses a comment of more than 65,536 characters.
limit, text = 60_000, "\n".join(lines) + "\n"
if len(text.encode()) > limit:
    tail = "\n\n… the whole report is an artifact of this run.\n"
    text = text.encode()[: limit - len(tail.encode())].decode(errors="ignore").rpartition("\n")[0] + tail
with open(os.path.join(report, "comment.md"), "w", encoding="utf-8") as f:
    f.write(text)
summary = os.environ.get("GITHUB_STEP_SUMMARY")
if summary:
    with open(summary, "a", encoding="utf-8") as f:
        f.write(text)
PYTHON
written=$?

for code in "$status" "$drift" "$written"; do
  [ "$code" = 0 ] || exit "$code"
done
