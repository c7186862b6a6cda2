"""A small client of the Chrome DevTools Protocol over a pipe, standard library only."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
]


class Page:
    """One tab: commands go out, answers and events come in; console messages, errors and requests are kept."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read, self._buffer, self._last = write, read, b"", 0
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.loaded = False
        target = self.send("Target.createTarget", session=None, url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", session=None, targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, session: str | None = "own", **params: Any) -> dict[str, Any]:
        self._last += 1
        message = {"id": self._last, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = self.session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        number = self._last
        while True:
            answer = self._next(60)
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def _next(self, seconds: float) -> dict[str, Any]:
        until = time.monotonic() + seconds
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, until - time.monotonic()))
            chunk = os.read(self._read, 1 << 20) if ready else b""
            if not chunk:
                raise TimeoutError("the browser did not answer")
            self._buffer += chunk
        raw, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(raw)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, event: str, params: dict[str, Any]) -> None:
        if event == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description", details["text"]))
        elif event == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.problems.append(str(params["args"]))
        elif event == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(params["entry"]["text"])
        elif event == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif event == "Page.loadEventFired":
            self.loaded = True

    def view(self, width: int, height: int = 900, *, dark: bool = False, media: str = "") -> None:
        """Set the size of the window, light or dark, screen or print."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def open(self, path: Path) -> float:
        """Open a file and wait for it; returns the seconds until its script had run."""
        self.loaded = False
        self.send("Page.navigate", url=path.resolve().as_uri())
        while not self.loaded:
            self._next(60)
        timing = "performance.getEntriesByType('navigation')[0]"
        return float(self.run(f"{timing}.domContentLoadedEventEnd - {timing}.startTime")) / 1000

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        result = self.send("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"]["text"])
        return result["result"].get("value")

    def mouse(self, x: float, y: float) -> None:
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def key(self, name: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=name, code=name)

    def screenshot(self, path: Path) -> None:
        """The whole page, not only what the window shows."""
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        image = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(image["data"]))

    def pdf(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.send("Page.printToPDF", printBackground=True)["data"]))


def _start(profile: Path) -> tuple[subprocess.Popen[bytes], int, int]:
    """A headless Chromium that takes commands from one pipe and answers on another."""
    assert CHROMIUM is not None
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()

    def wire() -> None:  # Chromium reads commands from descriptor 3 and writes answers to 4
        first, second = os.dup(to_read), os.dup(from_write)
        os.dup2(first, 3)
        os.dup2(second, 4)

    process = subprocess.Popen(
        [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
        preexec_fn=wire,
        close_fds=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(to_read)
    os.close(from_write)
    return process, to_write, from_read


def _stop(process: subprocess.Popen[bytes], *pipes: int) -> None:
    for pipe in pipes:
        os.close(pipe)
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def browser(profile: Path, starts: int = 3) -> Iterator[Page]:
    """A headless Chromium with one tab and a profile of its own.

    A Chromium that hangs while it starts says nothing about the page, so it is stopped and another one is started.
    """
    for start in range(1, starts + 1):
        process, *pipes = _start(profile.with_name(f"{profile.name}{start}"))
        try:
            page = Page(*pipes)
            break
        except (TimeoutError, OSError):
            _stop(process, *pipes)
            if start == starts:
                raise
    try:
        yield page
    finally:
        _stop(process, *pipes)
