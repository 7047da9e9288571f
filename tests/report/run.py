"""Looks at reports in a headless Chromium: at the widths of telephones and a desktop, light and dark.

run.py GSPLIT [--png DIR]

Makes a small dataset with presample, partitions and, where GSPLIT trains, runs; reports on all of it, on a bare dataset and on tables; and
fails on a message on the console, a request, a line that is too long for the page, letters that are too small, or a picture with
nothing on it. CHROMIUM names the browser; else one is looked for on PATH. It is spoken to through a pipe (Chrome DevTools Protocol), so
that nothing but Python's own library is needed. --png keeps the pictures in a folder.
"""

import argparse
import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

NAMES = ["chromium-headless-shell", "headless_shell", "chromium", "chromium-browser", "google-chrome", "chrome"]
WIDTHS = {"telephone": 360, "large telephone": 400, "desktop": 1280}
TIMEOUT_S = 60
# Pixels of the smallest letters.
SMALLEST = 9.0

LOOK = """JSON.stringify({
  page: document.documentElement.scrollWidth,
  wide: [...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll') &&
    e.getBoundingClientRect().right > WIDTH + 1).map(e => e.tagName + ' ' + e.textContent.slice(0, 40)),
  letters: Math.min(...[...document.querySelectorAll('svg')].filter(s => s.clientWidth).map(s => 12 * s.getBoundingClientRect().width / s.viewBox.baseVal.width)),
  charts: document.querySelectorAll('svg').length,
  // Scrolled to its end, a table still shows its first column.
  gone: [...document.querySelectorAll('.scroll')].filter(box => box.querySelector('table') && box.clientWidth).filter(box => {
    box.scrollLeft = box.scrollWidth;
    const gone = [...box.querySelectorAll('th:first-child')].some(
      cell => Math.abs(cell.getBoundingClientRect().left - box.getBoundingClientRect().left) > 1 || cell.offsetWidth > 0.6 * box.clientWidth);
    const scrolled = box.scrollLeft;
    box.scrollLeft = 0;
    return scrolled > 0 && gone;
  }).map(box => box.getAttribute('aria-label')),
  scrolling: [...document.querySelectorAll('.scroll')].filter(box => box.scrollWidth > box.clientWidth).length,
  paper: getComputedStyle(document.body).backgroundColor,
  overlaps: [...document.querySelectorAll('svg')].flatMap(s => {
    const boxes = [...s.querySelectorAll('text:not([transform])')].map(t => [t.getBoundingClientRect(), t.textContent]);
    return boxes.flatMap(([a, x], i) => boxes.slice(i + 1).filter(([b]) => a.left < b.right - 1 && b.left < a.right - 1 &&
      a.top < b.bottom - 1 && b.top < a.bottom - 1).map(([, y]) => s.getAttribute('aria-label') + ': ' + x + ' over ' + y));
  }),
  height: document.documentElement.scrollHeight,
})"""


def browser():
    named = os.environ.get("CHROMIUM")
    found = shutil.which(named) if named else next(filter(None, map(shutil.which, NAMES)), None)
    if not found:
        sys.exit(
            f"{named or 'Chromium'} is missing: install it (Debian: sudo apt-get install chromium-headless-shell), "
            "or name one with CHROMIUM=path"
        )
    return found


class Chromium:
    """A browser at the other end of two pipes: messages are JSON, each ended by a zero byte."""

    def __init__(self, program, folder):
        (child_reads, self.to), (self.back, child_writes) = os.pipe(), os.pipe()
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe"]
        command = [program, *options, f"--user-data-dir={folder}", "about:blank"]
        # Chromium reads from 3 and writes to 4.
        shell = f'exec "$@" 3<&{child_reads} 4>&{child_writes}'
        self.process = subprocess.Popen(
            ["timeout", str(TIMEOUT_S), "sh", "-c", shell, "sh", *command],
            pass_fds=[child_reads, child_writes],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(child_reads)
        os.close(child_writes)
        self.session, self.number, self.rest, self.events = None, 0, b"", []

    def next(self):
        while b"\0" not in self.rest:
            more = os.read(self.back, 1 << 16)
            if not more:
                sys.exit(f"{self.process.args[-1]}: the browser ended, or took more than {TIMEOUT_S} s")
            self.rest += more
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def ask(self, method, **params):
        self.number += 1
        request = {"id": self.number, "method": method, "params": params}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.to, json.dumps(request).encode() + b"\0")
        while True:
            message = self.next()
            if message.get("id") == self.number:
                if "error" in message:
                    sys.exit(f"{method}: {message['error']['message']}")
                return message["result"]
            self.events.append(message)

    def wait(self, method):
        while not any(event["method"] == method for event in self.events):
            self.events.append(self.next())

    def close(self):
        self.session = None
        self.ask("Browser.close")
        self.process.wait()
        os.close(self.to)
        os.close(self.back)


def pixels(png):
    """How many different bytes of colour a picture has."""
    data, at = b"", 8
    while at < len(png):
        length = int.from_bytes(png[at : at + 4], "big")
        if png[at + 4 : at + 8] == b"IDAT":
            data += png[at + 8 : at + 8 + length]
        at += 12 + length
    return len(set(zlib.decompress(data)))


def look(program, page, width, scheme):
    """The faults of a page, and a picture of it."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        chromium = Chromium(program, folder)
        target = chromium.ask("Target.createTarget", url="about:blank")["targetId"]
        chromium.session = chromium.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ["Page", "Runtime", "Network", "Log"]:
            chromium.ask(f"{domain}.enable")
        chromium.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 500
        )
        chromium.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        chromium.events.clear()
        chromium.ask("Page.navigate", url=page.as_uri())
        chromium.wait("Page.loadEventFired")
        seen = json.loads(chromium.ask("Runtime.evaluate", expression=LOOK.replace("WIDTH", str(width)))["result"]["value"])
        clip = {"x": 0, "y": 0, "width": width, "height": min(seen["height"], 12000), "scale": 1}
        shot = chromium.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        png = base64.b64decode(shot["data"])
        events, ours = chromium.events, [page.as_uri(), "data:,"]
        chromium.close()
    wrong = []
    for event in events:
        params = event["params"]
        if event["method"] in ["Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"]:
            wrong.append(f"console: {params}")
        if event["method"] == "Network.requestWillBeSent" and params["request"]["url"] not in ours:
            wrong.append(f"request: {params['request']['url']}")
    if seen["page"] > width or seen["wide"]:
        wrong.append(f"{seen['page']} pixels wide in a window of {width}: {seen['wide'][:5]}")
    if seen["charts"] and seen["letters"] < SMALLEST:
        wrong.append(f"letters of {seen['letters']:.1f} pixels in a chart")
    if seen["gone"]:
        wrong.append(f"first columns that scroll away: {seen['gone'][:5]}")
    if width < 500 and page.stem != "bare" and not seen["scrolling"]:
        wrong.append("no table is wider than a telephone: nothing was tried")
    if seen["overlaps"]:
        wrong.append(f"words over words: {seen['overlaps'][:5]}")
    level = int(seen["paper"].split("(")[1].split(",")[0])
    if (level > 128) != (scheme == "light"):
        wrong.append(f"{scheme}, on paper of {seen['paper']}")
    if len(png) < 5000 or pixels(png) < 16:
        wrong.append(f"a picture of {len(png)} bytes with nothing on it")
    return wrong, png


def prepare(gsplit, folder):
    """Three pages: of a folder with everything, of only a dataset, and of a run on tables."""

    def run(line):
        subprocess.run([gsplit, "--quiet", *line.split()], cwd=folder, check=True, stdout=subprocess.DEVNULL)

    run("generate community --vertices 20000 --edges 200000 --seed 1 --out all/ds")
    run("generate rmat --vertices 3000 --edges 20000 --out bare")
    run("presample all/ds --fanouts 10,5 --batch-size 512 --epochs 3")
    for options in ["", "--weights unit", "--partitioner random"]:
        run(f"partition all/ds --parts 4 {options}")
    trains = subprocess.run([gsplit, "train", "--print-config"], capture_output=True).returncode == 0
    if trains:
        shared = "--layers 2 --fanouts 10,5 --hidden 32 --batch-size 512 --epochs 12"
        for parallelism, ranks in [("split", 4), ("data", 4), ("single", 1)]:
            names = f"--checkpoint all/runs/{parallelism}"
            options = "--partition multilevel-presampled-k4 --placement partitioned --cache 20%" if parallelism == "split" else ""
            run(f"train all/ds --parallelism {parallelism} --ranks {ranks} {shared} {names} {options}")
    else:
        print("without a run: this gsplit does not train")
    run("report all --out all.html")
    run("report bare --out bare.html")
    pages = [folder / "all.html", folder / "bare.html"]
    if trains:
        tables = Path(__file__).resolve().parents[2] / "examples/customers"
        run(f"run {tables}/edges.csv --nodes {tables}/nodes.csv --label-column segment --out customers")
        pages.append(folder / "customers/report.html")
    return pages


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("gsplit", type=Path)
    parser.add_argument("--png", type=Path)
    args = parser.parse_args()
    program = browser()
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for page in prepare(args.gsplit.resolve(), Path(folder).resolve()):
            for device, width in WIDTHS.items():
                for scheme in ["light", "dark"]:
                    wrong, png = look(program, page, width, scheme)
                    passed, failed = passed + (not wrong), failed + bool(wrong)
                    print(f"{page.name}, {page.stat().st_size} bytes, {device}, {scheme}: {'; '.join(wrong) or 'ok'}")
                    if args.png:
                        args.png.mkdir(exist_ok=True)
                        (args.png / f"{page.stem}-{device}-{scheme}.png").write_bytes(png)
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
