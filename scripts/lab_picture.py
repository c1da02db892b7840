#!/usr/bin/env python3
"""Opens a notebook in JupyterLab in headless Chromium, looks whether it works, and takes pictures, light and dark.

    make lab-picture                                    notebook 1, into notebooks/lab.png
    scripts/lab_picture.py NOTEBOOK LIGHT.png DARK.png

Fails when a figure is not drawn, when a click on a heading does not sort its table, or when the page has a script error.
"""

import base64
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import nbformat
from nbformat.sign import NotebookNotary
from notebooks import ROOT, environment
from websocket import create_connection

# Seconds for the server, for the page.
PATIENCE = 120
DRAWN = "[...document.querySelectorAll('.jp-Notebook .qassay img')].filter(i => i.complete && i.naturalWidth > 50).length"
TABLES = "document.querySelectorAll('.jp-Notebook .qassay table.sortable').length"
# The first table with several rows, sorted by its second column, twice: the order of its rows each time.
SORT = """(() => {
  const t = [...document.querySelectorAll('.qassay table.sortable')].find(t => t.tBodies[0].rows.length > 3);
  const order = () => [...t.tBodies[0].rows].map(r => r.cells[1].textContent).join('|');
  const h = t.tHead.rows[0].cells[1];
  h.click(); const down = order(); h.click(); const up = order();
  return up !== down && h.getAttribute('aria-sort') === 'ascending';
})()"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(what, seconds=PATIENCE):
    """The first true answer of `what`; refused connections are not yet an answer."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            answer = what()
            if answer:
                return answer
        except OSError:
            pass
        time.sleep(0.5)
    sys.exit(f"nothing within {seconds} s")


class Page:
    """One tab, over the DevTools protocol."""

    def __init__(self, port):
        tabs = wait_for(lambda: [t for t in json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/json")) if t["type"] == "page"])
        self.socket = create_connection(tabs[0]["webSocketDebuggerUrl"], timeout=PATIENCE, suppress_origin=True)
        self.last, self.errors = 0, []
        for domain in ("Page", "Runtime"):
            self.ask(f"{domain}.enable")

    def ask(self, method, **params):
        self.last += 1
        self.socket.send(json.dumps({"id": self.last, "method": method, "params": params}))
        while True:
            message = json.loads(self.socket.recv())
            if message.get("method") == "Runtime.exceptionThrown":
                self.errors.append(message["params"]["exceptionDetails"].get("exception", {}).get("description", "?"))
            if message.get("id") == self.last:
                return message.get("result", {})

    def value(self, expression):
        return self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True).get("result", {}).get("value")

    def picture(self, path):
        Path(path).write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"]))


def look(page, url, light, dark):
    """What is wrong with the notebook at `url`; writes its pictures."""
    page.ask("Emulation.setDeviceMetricsOverride", width=1280, height=1000, deviceScaleFactor=1, mobile=False)
    page.ask("Page.navigate", url=url)
    wait_for(lambda: page.value(f"{TABLES} > 0 && {DRAWN} > 0"))
    time.sleep(3)
    page.value("window.jupyterapp?.commands.execute('application:toggle-left-area')")
    page.value("document.head.appendChild(Object.assign(document.createElement('style'), {textContent: '.Toastify{display:none}'}))")
    scroll = "document.querySelector('.jp-Notebook .qassay img').closest('.jp-Cell').previousElementSibling.scrollIntoView()"
    wrong = [] if page.value(SORT) is True else ["a click on a heading does not sort the table"]
    for path, theme in ((light, "JupyterLab Light"), (dark, "JupyterLab Dark")):
        page.value(f"window.jupyterapp?.commands.execute('apputils:change-theme', {{theme: '{theme}'}})")
        page.value(scroll)
        time.sleep(3)
        page.picture(path)
    print(f"{page.value(DRAWN)} figures and {page.value(TABLES)} tables drawn; {len(page.errors)} script errors")
    return wrong + page.errors


def main():
    notebook, light, dark = sys.argv[1:]
    environment()
    NotebookNotary().sign(nbformat.read(ROOT / "notebooks" / notebook, as_version=4))
    port, devtools, token = free_port(), free_port(), secrets.token_hex(16)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["JUPYTERLAB_WORKSPACES_DIR"] = f"{folder}/workspaces"
        lab = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--expose-app-in-browser", f"--port={port}",
               f"--IdentityProvider.token={token}", f"--notebook-dir={ROOT / 'notebooks'}"]
        chromium = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", f"--remote-debugging-port={devtools}",
                    f"--user-data-dir={folder}/chromium", "about:blank"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        started = [subprocess.Popen(command, **quiet) for command in (lab, chromium)]
        try:
            base = f"http://127.0.0.1:{port}"
            wait_for(lambda: urllib.request.urlopen(f"{base}/api?token={token}"))
            wrong = look(Page(devtools), f"{base}/lab/tree/{notebook}?token={token}&reset", light, dark)
        finally:
            for process in started:
                process.terminate()
                process.wait()
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
