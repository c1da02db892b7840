"""The checker: one `qassay serve` process, kept between calls.

A process and not a module of the interpreter: what ends it (a crash, no memory, Ctrl-C) ends no test session, and is never a verdict.
"""

from __future__ import annotations

import atexit
import errno
import json
import os
import select
import shutil
import signal
import subprocess
import sysconfig
import tempfile
import threading
import time
from importlib import metadata
from pathlib import Path

from . import _cuda
from ._errors import HIDE, CheckerError, CheckerTimeout, InputError

PROTOCOL = 1
_POLL_OUT = select.POLLOUT | select.POLLERR | select.POLLHUP


def version() -> str | None:
    """The installed package's version; None in a source tree that was not installed."""
    try:
        return metadata.version("qassay")
    except metadata.PackageNotFoundError:
        return None


def program() -> str:
    """The `qassay` program: `$QASSAY_BIN`, the `bin` beside this package (`pip install --target`), the environment's scripts, then PATH."""
    given = os.environ.get("QASSAY_BIN")
    if given:
        if not os.access(given, os.X_OK):
            raise CheckerError(f"QASSAY_BIN is {given}: no program there; unset it or give the path of `qassay`")
        return given
    beside = Path(__file__).resolve().parent.parent / "bin"
    for folder in (str(beside), sysconfig.get_path("scripts")):
        found = shutil.which("qassay", path=folder)
        if found:
            return found
    found = shutil.which("qassay")
    if found:
        return found
    raise CheckerError(
        f"no program `qassay` in {sysconfig.get_path('scripts')}, {beside} or PATH; `pip install qassay` again, or set QASSAY_BIN"
    )


def _nvrtc() -> str | None:
    """Where pip put NVRTC 13, for a program that lies elsewhere."""
    from importlib.util import find_spec

    spec = find_spec("nvidia")
    for root in (spec.submodule_search_locations or []) if spec else []:
        folder = os.path.join(root, "cu13", "lib")
        if os.path.exists(os.path.join(folder, "libnvrtc.so.13")):
            return folder
    return None


def _environment() -> dict[str, str]:
    env = dict(os.environ)
    workers = env.get("PYTEST_XDIST_WORKER_COUNT", "")
    if workers.isdigit() and int(workers) > 1 and "RAYON_NUM_THREADS" not in env:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        env["RAYON_NUM_THREADS"] = str(max(1, cores // int(workers)))
    if "QASSAY_NVRTC" not in env:
        folder = _nvrtc()
        if folder:
            env["QASSAY_NVRTC"] = folder
    return env


class Checker:
    """A running `qassay serve`. `ask` may be called from any thread; calls wait for one another."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.process: subprocess.Popen[bytes] | None = None
        self.said = None
        self.buffer = bytearray()

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self, deadline: float) -> None:
        __tracebackhide__ = HIDE
        path = program()
        self.said = tempfile.TemporaryFile()
        try:
            # A session of its own: Ctrl-C in the terminal must not reach it.
            self.process = subprocess.Popen(
                [path, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said, bufsize=0,
                start_new_session=True, env=_environment(),
            )
        except OSError as e:
            self.drop()
            raise CheckerError(f"{path}: {e.strerror}; `pip install qassay` again, or set QASSAY_BIN") from e
        os.set_blocking(self.process.stdin.fileno(), False)
        greeting, _ = self.answer(deadline)
        if greeting.get("protocol") != PROTOCOL or version() not in (None, greeting.get("qassay")):
            self.drop()
            raise CheckerError(
                f"{path} is qassay {greeting.get('qassay')} (protocol {greeting.get('protocol')}), expected {version()} "
                f"(protocol {PROTOCOL}); `pip install qassay` again, or unset QASSAY_BIN"
            )

    def drop(self) -> int | None:
        """Ends the process and closes everything that is its; the status it ended with."""
        process, said = self.process, self.said
        self.process, self.said, self.buffer = None, None, bytearray()
        status = None
        if process is not None:
            if process.poll() is None:
                process.kill()
            for pipe in (process.stdin, process.stdout):
                pipe.close()
            status = process.wait()
        if said is not None:
            said.close()
        return status

    def forget(self) -> None:
        """In a forked child: the process is the parent's. Its pipes are closed here, so that the parent's closing them ends it."""
        process, said = self.process, self.said
        self.lock = threading.RLock()
        self.process, self.said, self.buffer = None, None, bytearray()
        if process is not None:
            process.stdin.close()
            process.stdout.close()
            process.returncode = 0  # not ours to reap
        if said is not None:
            said.close()

    def ended(self) -> CheckerError:
        """The error of a process that went away."""
        process, said = self.process, self.said
        try:
            process.wait(1.0)
        except subprocess.TimeoutExpired:
            pass
        text = ""
        if said is not None:
            said.seek(0, os.SEEK_END)
            said.seek(max(0, said.tell() - 2000))
            text = said.read().decode(errors="replace").strip()
        status = self.drop()
        if status is not None and status < 0:
            try:
                name = signal.Signals(-status).name
            except ValueError:
                name = f"signal {-status}"
        else:
            name = f"status {status}"
        return CheckerError(f"qassay's checker ended ({name}); no verdict. It said: {text or 'nothing'}")

    # -- talk ---------------------------------------------------------------------------------------------------------

    def send(self, parts: list, deadline: float) -> None:
        __tracebackhide__ = HIDE
        fd = self.process.stdin.fileno()
        poll = select.poll()
        poll.register(fd, _POLL_OUT)
        for part in parts:
            view = memoryview(part)
            view = view.cast("B") if view.nbytes else view
            while view.nbytes:
                self.wait(poll, deadline)
                try:
                    view = view[os.write(fd, view[: 1 << 20]) :]
                except BlockingIOError:
                    continue
                except OSError as e:
                    if e.errno != errno.EPIPE:
                        raise
                    raise self.ended() from None

    def wait(self, poll, deadline: float) -> None:
        __tracebackhide__ = HIDE
        left = deadline - time.monotonic()
        # In slices: a Ctrl-C that comes just before the call does not end it.
        while left > 0 and not poll.poll(min(left, 1.0) * 1000.0):
            left = deadline - time.monotonic()
        if left <= 0:
            raise CheckerTimeout("qassay's checker did not answer in time and was ended; no verdict. Give timeout= more seconds, or a sample=")

    def more(self, poll, deadline: float) -> bytes:
        __tracebackhide__ = HIDE
        self.wait(poll, deadline)
        chunk = os.read(self.process.stdout.fileno(), 1 << 20)
        if not chunk:
            raise self.ended()
        return chunk

    def answer(self, deadline: float) -> tuple[dict, bytes]:
        __tracebackhide__ = HIDE
        poll = select.poll()
        poll.register(self.process.stdout.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
        while True:
            end = self.buffer.find(b"\n")
            if end >= 0:
                break
            self.buffer += self.more(poll, deadline)
        head = json.loads(self.buffer[:end])
        rest = end + 1 + head.get("bytes", 0)
        while len(self.buffer) < rest:
            self.buffer += self.more(poll, deadline)
        body = bytes(self.buffer[end + 1 : rest])
        del self.buffer[:rest]
        return head, body

    def ask(self, word: str, parts: list | None = None, timeout: float = 60.0, **fields) -> tuple[dict, bytes]:
        """Sends a request and returns the answer's line and bytes. Errors: InputError with what the program said of the request,
        CheckerTimeout, CheckerError."""
        __tracebackhide__ = HIDE
        with self.lock:
            deadline = time.monotonic() + timeout
            try:
                if self.process is None:
                    self.start(deadline)
                head, body = self.once({"word": word, **fields}, parts, deadline)
                if "unread" in head:
                    # From now on what lies on these GPUs goes through the pipe.
                    _cuda.refused(parts or [])
                    head, body = self.once({"word": word, **fields}, [_cuda.here(p) for p in parts], deadline)
            except BaseException:
                # Ctrl-C and a timeout too: an answer that comes late would be taken for the next one's.
                self.drop()
                raise
        if "error" in head:
            raise InputError(head["error"])
        if "panic" in head:
            raise CheckerError(f"qassay's checker panicked; no verdict. It said: {head['panic']}")
        return head, body


    def once(self, request: dict, parts: list | None, deadline: float) -> tuple[dict, bytes]:
        __tracebackhide__ = HIDE
        sent, shared, at = [], [], 0
        for part in parts or []:
            size = part.nbytes if hasattr(part, "nbytes") else len(part)
            if isinstance(part, _cuda.Shared) and part.data is None:
                shared.append(part)
                request.setdefault("shared", []).append({"at": at, "bytes": size, **part.where})
            else:
                sent.append(_cuda.here(part))
            at += size
        if parts is not None:
            request["bytes"] = at - sum(p.nbytes for p in shared)
        self.send([json.dumps(request).encode() + b"\n", *sent], deadline)
        for part in shared:
            part.fetch()  # While the checker works: what a Result can save is what was judged.
        return self.answer(deadline)


CHECKER = Checker()
atexit.register(CHECKER.drop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=CHECKER.forget)


def ask(word: str, parts: list | None = None, timeout: float = 60.0, **fields) -> tuple[dict, bytes]:
    """`Checker.ask` of this process's one checker."""
    __tracebackhide__ = HIDE
    return CHECKER.ask(word, parts, timeout, **fields)
