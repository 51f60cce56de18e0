#!/usr/bin/env python3
"""The page of `coshard trace report`, in a headless Chromium: narrow and wide, light and dark. Skipped where there is none.

usage: browser_test.py COSHARD
COSHARD_SCREENSHOTS=FOLDER keeps what it has seen.
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

import chromium

COSHARD = sys.argv.pop()
SKIP = 77
LAYERS, STEPS = 12, 3


class Writer:
    """A trace as coshard writes it."""

    def __init__(self):
        self.events = []

    def meta(self, name, pid, /, **args):
        self.events.append({"ph": "M", "name": name, "pid": pid, "tid": 0, "args": args})

    def span(self, cat, name, pid, begin, length, /, **args):
        self.events.append({"ph": "X", "name": name, "cat": cat, "pid": pid, "tid": 1, "ts": begin, "dur": length, "args": args})

    def write(self, path):
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"traceEvents": self.events}, file)


def training(path, ranks=4, kernels=8):
    """Steps of layers: a gather that kernels hide but for the gaps between them, and an all_reduce for which the rank stands still."""
    out = Writer()
    for rank in range(ranks):
        out.meta("process_name", rank, name=f"rank {rank}")
        out.meta("thread_name", rank, name="communication tp, emulated link 200us,1GB/s")
        at = 10.0 * rank
        for step in range(STEPS):
            begun = at
            for layer in range(LAYERS):
                module = f"layers.{layer}"
                gather = dict(bytes=1 << 20, communicator="dp", module=module, at="model.cpp:47")
                reduce = dict(bytes=1 << 18, communicator="tp", module=module + ".mlp", at="model.cpp:63")
                gathered = at + 90
                out.span("collective", "all_gather S(0)->R", rank, at, 90 + 5 * (layer % 4), **gather)
                for kernel in range(kernels):
                    length = 120 / kernels
                    name = ("linear", "softmax", "add")[kernel % 3]
                    out.span("kernel", name, rank, at, 0.9 * length, kind="gemm", module=module + (".attn", ".mlp")[2 * kernel >= kernels])
                    at += length
                    if at <= gathered and kernel % (kernels // 8) == 0:
                        out.span("await", "await all_gather S(0)->R", rank, at - 0.1 * length, 0.1 * length, **gather)
                out.span("collective", "all_reduce P(sum)->R", rank, at - 20, 60, **reduce)
                out.span("await", "await all_reduce P(sum)->R", rank, at, 40, **reduce)
                at += 45
            out.span("range", f"step {step + 2}", rank, begun, at - begun)
    out.write(path)


def report(trace, page):
    subprocess.run([COSHARD, "trace", "report", trace, "-o", page], check=True, stdout=subprocess.DEVNULL, timeout=60)


# For each lane, whether any of its pixels right of its name is painted.
PAINTED = """(() => {
  const line = page.timeline, painted = [];
  for (const lane of line.lanes.all) {
    line.box.scrollTop = lane.y - 60;
    line.draw();
    const ratio = devicePixelRatio, y = (lane.y - line.box.scrollTop + 8) * ratio, from = (line.gutter + 1) * ratio;
    const row = line.to2d.getImageData(from, y, line.shown[0] * ratio - from, 1).data;
    const colours = new Set();
    for (let i = 0; i < row.length; i += 4) colours.add(row[i] << 16 | row[i + 1] << 8 | row[i + 2]);
    painted.push(colours.size);
  }
  line.box.scrollTop = 0;
  return painted;
})()"""
COLUMN = """[...document.querySelectorAll('#tables table')[%d].tBodies[0].rows].map(row => row.cells[%d].textContent)"""


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.browser = cls.enterClassContext(chromium.Chromium()) if hasattr(cls, "enterClassContext") else chromium.Chromium()
        if not hasattr(cls, "enterClassContext"):
            cls.addClassCleanup(cls.browser.__exit__)
        cls.trace, cls.page = (os.path.join(cls.folder.name, name) for name in ("run.trace.json", "run.html"))
        training(cls.trace)
        report(cls.trace, cls.page)

    def tearDown(self):
        self.assertEqual(self.browser.errors(), [])
        self.assertEqual([url for url in self.browser.requested() if not url.startswith(("file:", "data:"))], [])

    def open(self, width=1280, dark=False, page=None):
        self.browser.open(page or self.page, width, 900, dark)
        return self.browser.value

    def keep(self, name):
        if folder := os.environ.get("COSHARD_SCREENSHOTS"):
            self.browser.screenshot(os.path.join(folder, name + ".png"))

    def test_nothing_is_wider_than_the_window_and_every_lane_is_drawn(self):
        grounds = set()
        for width in (1280, 400):
            for dark in (False, True):
                with self.subTest(width=width, dark=dark):
                    value = self.open(width, dark)
                    self.assertLessEqual(value("document.documentElement.scrollWidth"), width)
                    self.assertGreater(value("page.timeline.shown[0]"), 0.85 * width)
                    colours = value(PAINTED)
                    self.assertEqual(len(colours), 4 * 3)
                    self.assertTrue(all(n >= 2 for n in colours), colours)
                    grounds.add(value("getComputedStyle(document.body).backgroundColor"))
                    self.keep(f"{width}-{'dark' if dark else 'light'}")
        self.assertEqual(len(grounds), 2)

    def test_columns_sort_both_ways(self):
        value = self.open()
        head = "document.querySelectorAll('#tables table')[2].tHead.rows[0].cells[%d]"
        for column in (1, 5, 6):
            seen = []
            for _ in range(2):
                value((head % column) + ".querySelector('button').click()")
                seen.append([float(text) for text in value(COLUMN % (2, column)) if text != "–"])
            self.assertCountEqual(seen, [sorted(seen[0], reverse=True), sorted(seen[0])])
        self.assertIn(value((head % 6) + ".getAttribute('aria-sort')"), ("ascending", "descending"))
        value((head % 0) + ".querySelector('button').click()")
        names = value(COLUMN % (2, 0))
        self.assertLess(names.index("layers.2"), names.index("layers.10"))  # as numbers

    def test_keys_zoom_pan_and_step_through_events(self):
        value = self.open()
        value("document.getElementById('view').focus()")
        whole = value("page.timeline.to - page.timeline.from")
        self.browser.key("+")
        self.browser.key("+")
        zoomed = value("page.timeline.to - page.timeline.from")
        self.assertLess(zoomed, whole / 2)
        before = value("page.timeline.from")
        self.browser.key("ArrowRight", 39)
        self.assertGreater(value("page.timeline.from"), before)
        self.browser.key("ArrowDown", 40)
        self.browser.key("ArrowDown", 40)
        self.assertIn("rank 0, comm dp", value("document.getElementById('status').textContent"))
        self.browser.key("n")
        self.browser.key("n")
        told = value("document.getElementById('status').textContent")
        self.assertRegex(told, r"^all_gather S\(0\)->R .*layers\.\d+ .* % hidden .* model\.cpp:47$")
        self.keep("zoomed")
        self.browser.key("0")
        self.assertEqual(value("page.timeline.to - page.timeline.from"), whole)

    def test_tab_reaches_buttons_filter_timeline_and_tables(self):
        value = self.open()
        reached = set()
        for _ in range(60):
            self.browser.key("Tab", 9)
            reached.add(value("document.activeElement.id || document.activeElement.closest('th, td, .scroll')?.className"))
        self.assertLessEqual({"in", "out", "filter", "view", "number"}, reached)

    def test_the_filter_leaves_a_module(self):
        value = self.open()
        shown = "page.timeline.lanes.all.filter(lane => lane.compute)[0].shades[0][1].length"
        everything = value(shown)

        def choose(text):
            value(f"const input = document.getElementById('filter'); input.value = '{text}'; input.dispatchEvent(new Event('input'))".replace("const ", "var "))
            return value(shown)

        self.assertAlmostEqual(choose("layers.1") / everything, 1 / LAYERS, places=2)  # not layers.10
        self.keep("filtered")
        self.assertAlmostEqual(choose("attn") / everything, 0.5, places=2)
        self.assertFalse(value("document.getElementById('filter').classList.contains('none')"))
        self.assertEqual(choose("nothing of that name"), 0)
        self.assertTrue(value("document.getElementById('filter').classList.contains('none')"))
        value("[...document.querySelectorAll('td button')].find(b => b.textContent === 'layers.3').click()")
        self.assertAlmostEqual(value(shown) / everything, 1 / LAYERS, places=2)

    def test_shades_are_those_of_the_report(self):
        value = self.open()
        for rank in range(4):
            lanes = f"page.timeline.lanes.all.filter(lane => lane.rank === {rank})"
            exposed = value(f"report.ranks[{rank}].kinds.map(kind => kind.exposed_ms)")
            shades = value(lanes + ".slice(1).map(lane => lane.shades[0][1].length / 1e6)")
            for one, other in zip(sorted(exposed), sorted(shades)):
                self.assertAlmostEqual(one, other, places=6)

    def test_the_longest_exposed_is_shown(self):
        value = self.open(400)
        value("[...document.querySelectorAll('td button')].find(b => b.textContent.startsWith('all_reduce')).click()")
        self.assertLess(value("page.timeline.to - page.timeline.from"), 1e6)
        self.assertIn("all_reduce", value("document.getElementById('status').textContent"))

    def test_two_hundred_thousand_events_are_drawn_at_once(self):
        trace, page = (os.path.join(self.folder.name, name) for name in ("large.json", "large.html"))
        training(trace, ranks=8, kernels=700)
        report(trace, page)
        value = self.open(page=page)
        events = value("page.timeline.lanes.all.reduce((sum, lane) => sum + lane.size, 0)")
        self.assertGreater(events, 200_000)
        took = value("(() => { const t = performance.now(); for (let i = 0; i < 20; ++i) page.timeline.draw(); return (performance.now() - t) / 20; })()")
        value("page.timeline.zoom(0.02)")
        zoomed = value("(() => { const t = performance.now(); for (let i = 0; i < 20; ++i) page.timeline.draw(); return (performance.now() - t) / 20; })()")
        print(f"{events} events in {os.path.getsize(page) / 1e6:.1f} MB: drawn in {took:.1f} ms, zoomed in {zoomed:.1f} ms")
        self.keep("large")

    def test_names_are_text_and_what_is_missing_is_left_out(self):
        trace, page = (os.path.join(self.folder.name, name) for name in ("odd.json", "odd.html"))
        out = Writer()
        name = "</script><img src=x onerror=boom()>"
        out.meta("process_name", 3, name="rank 3")
        out.span("kernel", name, 3, 0, 0, module=name)
        out.span("kernel", name, 3, 5, 0.001, module=name)
        out.write(trace)
        report(trace, page)
        value = self.open(page=page)
        self.assertEqual(value("document.images.length"), 0)
        self.assertEqual(value("document.querySelectorAll('#tables table').length"), 2)
        self.assertIn(name, value("document.getElementById('tables').textContent"))


if __name__ == "__main__":
    if not chromium.installed():
        print("chromium is not installed")
        sys.exit(SKIP)
    unittest.main(argv=sys.argv)
