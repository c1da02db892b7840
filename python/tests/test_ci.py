"""The steps of a pull request, run as they are in an empty repository: examples/ci, and the action."""

import os
import pathlib
import re
import subprocess
import sys

import pytest
import yaml

HERE = pathlib.Path(__file__).parent
SCRIPT = HERE / "ci/run.sh"
COUNT = 700  # wrong results whose lines are longer together than a comment may be
RIGHT = """
import numpy as np, qassay
X = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
def test_right():
    qassay.assert_activation((X * (X > 0)).astype(np.float32), X, "relu")
"""
WRONG = RIGHT + """
import pytest
@pytest.mark.parametrize("i", range({count}))
def test_wrong(i):
    qassay.assert_activation((X * (X > 0) * np.float32(1.5)).astype(np.float32), X, "relu", diagnose=False)
"""


@pytest.fixture
def bin(tmp_path):
    """Programs that a step calls, and nothing of this machine's but the system's."""
    bin = tmp_path / "bin"
    bin.mkdir()

    def program(name, text):
        (bin / name).write_text(f"#!/bin/sh\n{text}\n")
        (bin / name).chmod(0o755)

    program("python3", f'exec "{sys.executable}" "$@"')
    program("qassay", f'exec "{__import__("qassay").program()}" "$@"')
    program("cargo", "exit 0")
    program("gh", 'for last; do :; done; test -s "$last" && echo "$@" > gh.txt')
    return bin


@pytest.fixture
def environment(bin, tmp_path):
    return {"PATH": f"{bin}:/usr/bin:/bin", "HOME": str(tmp_path)}


@pytest.fixture
def run(tmp_path, environment):
    def go(text, **more):
        (tmp_path / "test_mine.py").write_text(text)
        env = {**environment, "TESTS": "test_mine.py", **more}
        return subprocess.run(["bash", str(SCRIPT)], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)

    return go


def steps(file, values):
    """What a workflow or an action runs: (script, environment) of each step, with the expressions of GitHub replaced by `values`."""
    written = yaml.safe_load((HERE / file).read_text())
    parts = [written["runs"]] if "runs" in written else list(written["jobs"].values())
    usual = {f"inputs.{name}": what.get("default", "") for name, what in written.get("inputs", {}).items()}
    known = {**usual, **values}
    expression = re.compile(r"\$\{\{ *(.*?) *\}\}")

    def filled(text):
        return expression.sub(lambda m: known[m.group(1)], str(text))

    for part in parts:
        for step in part["steps"]:
            assert ("run" in step) != ("uses" in step), step
            if "run" in step:
                yield filled(step["run"]), {name: filled(value) for name, value in step.get("env", {}).items()}


def execute(file, values, folder, env):
    """Runs every step as GitHub's bash does; returns how many there were."""
    count = 0
    for script, more in steps(file, values):
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
        done = subprocess.run(command, cwd=folder, env={**env, **more}, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{file}: {script}\n{done.stdout}{done.stderr}"
        count += 1
    return count


GITHUB = {"github.token": "t", "github.event.pull_request.number": "7", "github.event_name": "pull_request"}


@pytest.mark.parametrize("file", ["action.yml", "ci/kernel.yml"])
def test_the_steps_of_a_kernels_repository(file, tmp_path, environment):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_mine.py").write_text(RIGHT)
    action = tmp_path / "action/examples"
    action.mkdir(parents=True)
    (action / "ci").symlink_to(HERE / "ci")
    (tmp_path / ".github").mkdir()
    (tmp_path / ".github/qassay").symlink_to(HERE / "ci")
    wheel = str(next(HERE.glob("qassay-*.whl")))
    env = {**environment, "GITHUB_ACTION_PATH": str(tmp_path / "action"), "GITHUB_REPOSITORY": "me/mine"}
    count = execute(file, {**GITHUB, "inputs.version": wheel, "inputs.tests": "tests"}, tmp_path, env)
    assert count == 3
    assert (tmp_path / "qassay-report/comment.md").read_text().startswith("## qassay: 1 of 1 assays pass")
    said = (tmp_path / "gh.txt").read_text()
    assert said.startswith("pr comment 7 ") and said.endswith("--body-file qassay-report/comment.md\n")


def test_the_steps_of_a_drift_gate(tmp_path, environment, bin):
    (tmp_path / "target/release").mkdir(parents=True)
    (tmp_path / "target/release/qassay").symlink_to(bin / "qassay")
    env = {**environment, "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    begin = "qassay run smoke --quiet --out first && qassay accept first --new"
    subprocess.run(["bash", "-c", begin], cwd=tmp_path, env=env, check=True, capture_output=True, timeout=300)
    assert execute("ci/qassay.yml", GITHUB, tmp_path, env) == 4
    assert (tmp_path / "summary.md").read_text().startswith("## qassay: no drift")
    assert all((tmp_path / name).exists() for name in ("reports/smoke/index.html", "reports/check/rows.csv", "drift.xml", "drift.html"))


def test_a_right_kernel(run, tmp_path):
    done = run(RIGHT, GITHUB_STEP_SUMMARY=str(tmp_path / "summary.md"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "qassay-report/comment.md").read_text().startswith("## qassay: 1 of 1 assays pass")
    assert (tmp_path / "summary.md").read_text() == (tmp_path / "qassay-report/comment.md").read_text()
    assert "::error" not in done.stdout


def test_wrong_kernels_are_annotated_and_the_comment_is_short(run, tmp_path):
    done = run(WRONG.format(count=COUNT))
    assert done.returncode == 1
    errors = [line for line in done.stdout.splitlines() if line.startswith("::error ")]
    assert len(errors) == COUNT and errors[0].startswith("::error file=test_mine.py,title=qassay fail::test_mine.py::test_wrong[0]: ")
    comment = (tmp_path / "qassay-report/comment.md").read_bytes()
    assert len(comment) <= 60_000 and b"1 of %d assays pass" % (COUNT + 1) in comment and b"an artifact of this run" in comment
    assert len(list((tmp_path / "qassay-report/bundles").iterdir())) == COUNT
    assert os.path.getsize(tmp_path / "qassay-report/index.html") > 10_000


def test_check_needs_its_baseline(run):
    done = run(RIGHT, CHECK="smoke")
    assert done.returncode == 2 and "baseline" in done.stderr
