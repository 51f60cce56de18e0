"""A headless Chromium that is spoken to over pipes, by the DevTools protocol. Needs no package of Python."""
import base64
import fcntl
import json
import os
import shutil
import subprocess
import tempfile


def installed():
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Chromium:
    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="coshard-chromium-")
        command_read, self.to = os.pipe()
        self.back, answer_write = os.pipe()
        # It wants them as 3 and 4, which they may be the other way round.
        high = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (command_read, answer_write)]

        def place():
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        flags = ["--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--hide-scrollbars",
                 "--disable-dev-shm-usage", "--disable-background-networking", f"--user-data-dir={self.folder.name}"]
        if os.getuid() == 0:
            flags.append("--no-sandbox")
        self.process = subprocess.Popen([installed(), *flags, "about:blank"], pass_fds=(3, 4), preexec_fn=place,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for end in (command_read, answer_write, *high):
            os.close(end)
        self.number, self.unread, self.events, self.session = 0, b"", [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.to)  # it ends when nobody speaks to it
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.back)
        self.folder.cleanup()

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while (answer := self.next()).get("id") != self.number:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def next(self):
        while b"\0" not in self.unread:
            part = os.read(self.back, 1 << 20)
            if not part:
                raise RuntimeError("chromium has ended")
            self.unread += part
        message, self.unread = self.unread.split(b"\0", 1)
        return json.loads(message)

    def open(self, path, width, height, dark, ratio=1):
        self.events.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=ratio, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url="file://" + os.path.abspath(path))
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.next())
        self.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def value(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def key(self, key, code=0):
        text = {"text": key} if len(key) == 1 else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **(text if kind == "keyDown" else {}))

    def errors(self):
        found = [event["params"] for event in self.events if event.get("method") == "Runtime.exceptionThrown"]
        found += [event["params"]["entry"] for event in self.events
                  if event.get("method") == "Log.entryAdded" and event["params"]["entry"]["level"] == "error"]
        return found

    def requested(self):
        return [event["params"]["request"]["url"][:100] for event in self.events if event.get("method") == "Network.requestWillBeSent"]

    def screenshot(self, path, whole=True):
        data = self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
