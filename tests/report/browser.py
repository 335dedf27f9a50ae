"""A headless Chromium that is driven over a pipe: the DevTools protocol, one JSON object between two NUL bytes."""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_PATIENCE = 60.0  # seconds for an answer


class Browser:
    """One page in a browser without network; `evaluate` runs JavaScript in it, and `problems` lists what it complained of."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="report-test-")
        (from_us, self._out), (self._in, to_us) = os.pipe(), os.pipe()
        switches = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--host-resolver-rules=MAP * ~NOTFOUND",
        ]
        command = [PROGRAM, *switches, "--remote-debugging-pipe", f"--user-data-dir={self.folder}", "about:blank"]

        def pipes_as_three_and_four():
            high = [os.dup(fd) for fd in (from_us, to_us)]
            spare = [os.dup2(fd, 60 + i) for i, fd in enumerate(high)]
            for target, fd in zip((3, 4), spare, strict=True):
                os.dup2(fd, target)

        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, close_fds=False, preexec_fn=pipes_as_three_and_four, **quiet)  # noqa: PLW1509
        os.close(from_us)
        os.close(to_us)
        self._buffer, self._number, self.problems, self._events = b"", 0, [], []
        targets = self._call("Target.getTargets", session=None)["targetInfos"]
        target = next(one["targetId"] for one in targets if one["type"] == "page")
        self._session = self._call("Target.attachToTarget", {"targetId": target, "flatten": True}, session=None)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def _call(self, method, params=None, session=""):
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": params or {}}
        if session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def _read(self):
        end = time.monotonic() + _PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            read = os.read(self._in, 1 << 20)
            assert read, "the browser has ended"
            self._buffer += read
        line, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(line)
        self._note(message)
        return message

    def _note(self, message):
        method, params = message.get("method"), message.get("params", {})
        self._events.append(method)
        if method == "Runtime.exceptionThrown":
            self.problems.append(params["exceptionDetails"]["exception"].get("description", "exception"))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.problems.append(str(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent" and not params["request"]["url"].startswith(("file:", "data:")):
            self.problems.append(f"request of {params['request']['url']}")

    def open(self, path, width=1200, height=900, scheme="light", media="", *, forced=False):
        """Load a file in a window of a size, or as on paper of that size, and wait until its charts are drawn."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._call("Emulation.setDeviceMetricsOverride", size)
        preferred = [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "forced-colors", "value": "active" if forced else "none"},
        ]
        self._call("Emulation.setEmulatedMedia", {"media": media, "features": preferred})
        self._events = []
        self._call("Page.navigate", {"url": path.resolve().as_uri()})
        self.wait_for_load()
        self.settle()

    def wait_for_load(self):
        """Wait until a page is loaded that was not before."""
        while "Page.loadEventFired" not in self._events:
            self._read()
        self._events = []

    def settle(self):
        """Wait until what was asked for is drawn."""
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def evaluate(self, code):
        """Return the value of a JavaScript expression."""
        asked = {"expression": code, "returnByValue": True, "awaitPromise": True}
        found = self._call("Runtime.evaluate", asked)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def mouse(self, kind, x, y, **more):
        """Send a mouse event: `mouseMoved`, `mousePressed` or `mouseReleased`."""
        self._call("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, **more})

    def drag(self, start, end):
        """Drag with the left button from one point to another."""
        left = {"button": "left", "buttons": 1, "clickCount": 1}
        self.mouse("mouseMoved", *start)
        self.mouse("mousePressed", *start, **left)
        for step in (1, 2, 3):
            self.mouse(
                "mouseMoved", *(a + (b - a) * step / 3 for a, b in zip(start, end, strict=True)), button="left", buttons=1
            )
        self.mouse("mouseReleased", *end, **{**left, "buttons": 0})
        self.settle()

    def touch(self, *points):
        """Put a finger on the first point, move it over the others, and lift it."""
        for kind, point in zip(("touchStart", *["touchMove"] * (len(points) - 1)), points, strict=True):
            self._call("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [dict(zip("xy", point, strict=True))]})
        self._call("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        self.settle()

    def press(self, key):
        """Press and release a key, named as in JavaScript."""
        text = {"text": key} if len(key) == 1 else {}
        self._call("Input.dispatchKeyEvent", {"type": "keyDown", "key": key, **text})
        self._call("Input.dispatchKeyEvent", {"type": "keyUp", "key": key})
        self.settle()

    def screenshot(self, path, *, whole=True):
        """Write a PNG of the page, or of what the window shows of it."""
        found = self._call("Page.captureScreenshot", {"captureBeyondViewport": whole, **self._clip(whole)})
        path.write_bytes(base64.b64decode(found["data"]))

    def _clip(self, whole):
        if not whole:
            return {}
        size = self.evaluate("({width: innerWidth, height: document.documentElement.scrollHeight})")
        return {"clip": {"x": 0, "y": 0, **size, "scale": 1}}

    def close(self):
        with contextlib.suppress(OSError, AssertionError):
            self._call("Browser.close", session=None)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._process.kill()
        self._process.wait()
        os.close(self._out)
        os.close(self._in)
        shutil.rmtree(self.folder, ignore_errors=True)


def plot_box(browser, index=0):
    """Left, top, width and height of a chart in the window, scrolled into it."""
    code = f"document.querySelectorAll('.plot')[{index}]"
    browser.evaluate(f"{code}.scrollIntoView({{block: 'center'}})")
    browser.settle()
    return browser.evaluate(f"(r => [r.x, r.y, r.width, r.height])({code}.getBoundingClientRect())")


def tip(browser, index=0):
    """What the box beside the cursor says; None while it is hidden."""
    code = f"document.querySelectorAll('.tip')[{index}]"
    return browser.evaluate(f"{code}.hidden ? null : {code}.innerText.replace(/\\s+/g, ' ').trim()")


def ticks(browser, index=0):
    """The labels of the x axis."""
    found = f"document.querySelectorAll('.plot')[{index}]"
    low = f"t => +t.getAttribute('y') > {found}.clientHeight - 15"
    return browser.evaluate(f"[...{found}.querySelectorAll('.tick')].filter({low}).map(t => t.textContent)")


def count(browser, selector):
    browser.settle()
    return browser.evaluate(f"document.querySelectorAll({selector!r}).length")


def click(browser, selector):
    browser.evaluate(f"document.querySelector({selector!r}).click()")
    browser.settle()
