"""The steps of a pull request, run as they are: examples/ci/run.sh, in an empty repository."""

import os
import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).parent / "run.sh"
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
def run(tmp_path):
    def go(text, **more):
        (tmp_path / "test_mine.py").write_text(text)
        bin = tmp_path / "bin"
        bin.mkdir(exist_ok=True)
        for name, target in (("python3", sys.executable), ("qassay", __import__("qassay").program())):
            (bin / name).write_text(f'#!/bin/sh\nexec "{target}" "$@"\n')
            (bin / name).chmod(0o755)
        env = {"PATH": f"{bin}:/usr/bin:/bin", "HOME": str(tmp_path), "TESTS": "test_mine.py", **more}
        return subprocess.run(["bash", str(SCRIPT)], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)

    return go


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
