"""The checker's life: what ends it is an error and never a verdict, and the next call works."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import qassay
from qassay import _cuda, _process

X = np.ones((2, 32), np.float32)


def works():
    return qassay.quantize(X, "te_current").format == "e4m3"


def child(q):
    q.put(works())


def test_a_killed_checker_is_an_error_and_the_next_call_works():
    assert works()
    before = _process.CHECKER.process.pid
    os.kill(before, signal.SIGKILL)
    with pytest.raises(qassay.CheckerError, match=r"checker ended \(SIGKILL\); no verdict") as e:
        works()
    assert not isinstance(e.value, AssertionError)
    assert works() and _process.CHECKER.process.pid != before


def test_an_abort_in_the_middle():
    assert works()
    pid = _process.CHECKER.process.pid
    os.kill(pid, signal.SIGSTOP)
    threading.Timer(0.3, lambda: (os.kill(pid, signal.SIGABRT), os.kill(pid, signal.SIGCONT))).start()
    with pytest.raises(qassay.CheckerError, match=r"SIGABRT"):
        works()
    assert works()


def test_a_checker_that_hangs_is_ended():
    assert works()
    pid = _process.CHECKER.process.pid
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(qassay.CheckerTimeout, match="no verdict"):
        _process.ask("ping", timeout=0.3)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert works()


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_processes(method):
    assert works()
    before = _process.CHECKER.process.pid
    context = multiprocessing.get_context(method)
    q = context.Queue()
    process = context.Process(target=child, args=(q,))
    process.start()
    assert q.get(timeout=60) is True
    process.join(10)
    q.close()
    q.join_thread()
    assert works() and _process.CHECKER.process.pid == before


def test_threads():
    said = []
    threads = [threading.Thread(target=lambda: said.extend(works() for _ in range(10))) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert said == [True] * 80


def run(code, **how):
    return subprocess.run([sys.executable, "-X", "dev", "-W", "error", "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, **how)


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as f:
        return f.read().rpartition(")")[2].split()[0] != "Z"


def test_nothing_is_left_open():
    done = run("import qassay, numpy as np; qassay.quantize(np.ones((2,2),np.float32),'te_current')")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_checker_ends_with_its_parent():
    done = run("""
        import os, qassay, signal
        from qassay import _process
        _process.ask("ping"); print(_process.CHECKER.process.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    pid = int(done.stdout)
    end = time.monotonic() + 10
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.02)
    assert not alive(pid)


def test_ctrl_c_ends_the_work_at_once():
    done = run("""
        import os, qassay, signal, threading, time
        from qassay import _process
        # A shell's background job is born with SIGINT ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _process.ask("ping"); pid = _process.CHECKER.process.pid
        os.kill(pid, signal.SIGSTOP)
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        started = time.monotonic()
        try:
            _process.ask("ping")
        except KeyboardInterrupt:
            print("interrupted", time.monotonic() - started < 5, os.path.exists(f"/proc/{pid}"))
        print(_process.ask("ping")[0])
    """)
    assert done.stdout.splitlines() == ["interrupted True False", "{'pong': True}"], done.stderr


FAKE = """#!{python}
import json, os, sys
print(json.dumps({{"qassay": {version!r}, "protocol": {protocol}}}), flush=True)
for line in sys.stdin:
    {body}
"""


@pytest.fixture
def fake(tmp_path, monkeypatch):
    def make(body, version=qassay.version(), protocol=1):
        path = tmp_path / "qassay"
        path.write_text(FAKE.format(python=sys.executable, body=body, version=version, protocol=protocol))
        path.chmod(0o755)
        monkeypatch.setenv("QASSAY_BIN", str(path))
        _process.CHECKER.drop()

    yield make
    _process.CHECKER.drop()


def test_a_panic_is_no_verdict(fake):
    fake("""print(json.dumps({"panic": "index out of bounds at x.rs:1"}), flush=True)""")
    with pytest.raises(qassay.CheckerError, match="panicked; no verdict. It said: index out of bounds"):
        works()


def test_the_end_of_stderr_is_told(fake):
    fake("""sys.stderr.write("thread main has overflowed its stack"); sys.stderr.flush(); os.abort()""")
    with pytest.raises(qassay.CheckerError, match=r"\(SIGABRT\); no verdict. It said: thread main has overflowed its stack"):
        works()


def test_another_version_is_refused(fake):
    fake("pass", version="9.9.9")
    with pytest.raises(qassay.CheckerError, match="is qassay 9.9.9 .*expected " + qassay.version()):
        works()
    fake("pass", protocol=2)
    with pytest.raises(qassay.CheckerError, match="protocol 2"):
        works()


def test_no_program(monkeypatch):
    _process.CHECKER.drop()
    monkeypatch.setenv("QASSAY_BIN", "/nowhere/qassay")
    with pytest.raises(qassay.CheckerError, match="QASSAY_BIN is /nowhere/qassay: no program there"):
        works()


def test_the_program_beside_the_package_comes_first(monkeypatch, tmp_path):
    """`pip install --target` into an environment that has another one."""
    monkeypatch.delenv("QASSAY_BIN", raising=False)
    (tmp_path / "bin").mkdir()
    beside = tmp_path / "bin" / "qassay"
    beside.write_text("#!/bin/sh\n")
    beside.chmod(0o755)
    monkeypatch.setattr(_process, "__file__", str(tmp_path / "qassay" / "_process.py"))
    assert qassay.program() == str(beside)


def test_a_request_that_is_wrong_says_so_and_the_next_is_answered():
    with pytest.raises(qassay.InputError, match="unknown word `dance`; known: assay"):
        _process.ask("dance")
    assert works()


def test_workers_of_xdist_share_the_cores(monkeypatch):
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "1000")
    monkeypatch.delenv("RAYON_NUM_THREADS", raising=False)
    assert _process._environment()["RAYON_NUM_THREADS"] == "1"


def test_a_search_for_a_name_that_takes_too_long_leaves_the_verdict(monkeypatch):
    from qassay import _checks

    asked = []

    def slow(word, parts, timeout, **fields):
        asked.append(fields["seconds"])
        if fields["seconds"]:
            raise qassay.CheckerTimeout("too long")
        return _process.ask(word, parts, timeout, **fields)

    monkeypatch.setattr(_checks, "ask", slow)
    x = np.random.default_rng(0).standard_normal((16, 32)).astype(np.float32)
    with pytest.raises(qassay.KernelFailure):
        qassay.assert_activation(np.zeros_like(x), x, "gelu")
    assert len(asked) == 2 and asked[0] > 0 and asked[1] == 0
    # Who asks for no name waits once.
    monkeypatch.setattr(_checks, "ask", lambda *a, **k: (_ for _ in ()).throw(qassay.CheckerTimeout("too long")))
    with pytest.raises(qassay.CheckerTimeout):
        qassay.assert_activation(x, x, "gelu", diagnose=False)


@pytest.mark.parametrize("timeout", [0, -5, float("nan"), "10", None])
def test_a_time_limit_that_cannot_be_met_is_refused(timeout):
    with pytest.raises(qassay.InputError, match="expected seconds, more than 0"):
        qassay.assert_activation(X, X, "relu", timeout=timeout)
    assert works()


class OnGpu(np.ndarray):
    """An array that says it lies on a GPU."""

    is_cuda, device = True, 0

    def numel(self):
        return self.size

    def element_size(self):
        return self.itemsize


def test_memory_that_the_checker_cannot_read_goes_through_the_pipe(monkeypatch, product):
    """Where it cannot be read, the same bytes are sent, once and for all."""
    nowhere = {"handle": "00" * 64, "offset": 0, "gpu": "00" * 16}
    shares = []

    def share(x):
        if nowhere["gpu"] in _cuda.REFUSED or not isinstance(x, OnGpu):
            return None
        shares.append(_cuda.Shared(x, nowhere))
        return shares[-1], x.dtype.name, list(x.shape)

    monkeypatch.setattr(_cuda, "share", share)
    monkeypatch.setattr(_cuda, "REFUSED", set())
    monkeypatch.setattr("qassay._checks.device_of", lambda *_: None)
    out, (a8, sa), (b8, sb) = product()
    result = qassay.assert_gemm(out.view(OnGpu), a8, sa, b8, sb)
    assert result.verdict == "pass" and len(shares) == 1
    # Another GPU's memory may be readable.
    assert _cuda.REFUSED == {nowhere["gpu"]}
    wrong = out.copy()
    wrong[3, 5] *= 2.0
    with pytest.raises(qassay.KernelFailure) as e:
        qassay.assert_gemm(wrong.view(OnGpu), a8, sa, b8, sb)
    # What is saved is what was judged.
    assert len(shares) == 1 and wrong.tobytes() in b"".join(bytes(memoryview(p)) for p in e.value.result._parts)


def test_what_is_shared_is_not_sent(monkeypatch):
    """The checker reads it at its place in the file."""
    data = np.arange(8, dtype=np.uint8)
    checker = _process.Checker()
    sent = []
    monkeypatch.setattr(checker, "send", lambda parts, deadline: sent.append([bytes(memoryview(p)) for p in parts]))
    monkeypatch.setattr(checker, "answer", lambda deadline: ({}, b""))
    parts = [b"head", _cuda.Shared(data.view(OnGpu), {"offset": 7}), data[:3]]
    checker.once({"word": "assay"}, parts, 0.0)
    line, *rest = sent[0]
    assert json.loads(line) == {"word": "assay", "bytes": 7, "shared": [{"at": 4, "bytes": 8, "offset": 7}]}
    assert rest == [b"head", b"\0\1\2"]
    # Asked again, it is sent: the owner may have written since.
    checker.once({"word": "assay"}, parts, 0.0)
    assert sent[1][1:] == [b"head", data.tobytes(), b"\0\1\2"] and "shared" not in json.loads(sent[1][0])
