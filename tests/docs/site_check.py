"""Looks over a built site. usage: site_check.py FOLDER

Every page's links lead to files and places of the site that are there, and nothing that a page loads (scripts, styles,
images, fonts) comes from elsewhere, so that the site opens without a network. Links for readers may lead anywhere. Places
within the API reference are Doxygen's affair: 1.9.4 lists friends and private nested classes at places that it leaves out.
No block of code of a page scrolls sideways in a window of 1300 pixels; measured where Chromium is installed.
"""
import glob
import os
import re
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tools/trace"))
import chromium

LOADED = {("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("object", "data")}
ELSEWHERE = re.compile(r"(https?:)?//")
FROM_STYLE = re.compile(r"url\(\s*['\"]?((?:https?:)?//[^)'\"]+)|@import\s+(?:url\()?['\"]?((?:https?:)?//[^)'\"]+)")


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.places, self.links, self.loads = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.places |= {values[name] for name in ("id", "name") if values.get(name)}
        for name in ("href", "src", "data"):
            if not values.get(name):
                continue
            if (tag, name) in LOADED and values.get("rel") not in ("canonical", "next", "prev", "index", "search"):
                self.loads.append(values[name])
            elif (tag, name) == ("a", "href"):
                self.links.append(values[name])
        self.loads += [match[0] or match[1] for match in FROM_STYLE.findall(values.get("style") or "")]


def files_of(folder, suffix):
    return [os.path.join(where, name) for where, _, names in os.walk(folder) for name in names if name.endswith(suffix)]


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def problems_of_page(path, page, pages):
    for target in page.loads + page.links:
        parts = urlsplit(target)
        if parts.scheme or target.startswith("//"):
            if target in page.loads and parts.scheme not in ("data", "javascript"):
                yield f"loads {target}"
            continue
        file = os.path.normpath(os.path.join(os.path.dirname(path), unquote(parts.path))) if parts.path else path
        if os.path.isdir(file):
            file = os.path.join(file, "index.html")
        if not os.path.exists(file):
            yield f"leads to {target}, which is not there"
        elif "/api/" not in path and parts.fragment and file in pages and unquote(parts.fragment) not in pages[file].places | {"top"}:
            yield f"leads to {target}, of which there is no such place"


def problems_of(folder):
    pages = {path: Page(read(path)) for path in files_of(folder, ".html")}
    found = [] if pages else [f"{folder} has no pages"]
    for path, page in sorted(pages.items()):
        found += [f"{os.path.relpath(path, folder)}: {problem}" for problem in problems_of_page(path, page, pages)]
    for path in files_of(folder, ".css"):
        for match in FROM_STYLE.findall(re.sub(r"/\*.*?\*/", "", read(path), flags=re.S)):
            found.append(f"{os.path.relpath(path, folder)}: loads {match[0] or match[1]}")
    return found


WIDE = """[...document.querySelectorAll('pre')].filter(block => block.scrollWidth > block.clientWidth)
  .map(block => block.textContent.split('\\n').reduce((longest, line) => line.length > longest.length ? line : longest))"""


def wide_blocks_of(folder):
    """Blocks of code that do not fit their column, by their longest lines."""
    found = []
    with chromium.Chromium() as browser:
        for path in sorted(glob.glob(os.path.join(folder, "*.html"))):
            browser.open(path, 1300, 900, dark=False)
            found += [f"{os.path.basename(path)}: wider than its column: {line}" for line in browser.value(WIDE)]
    return found


if __name__ == "__main__":
    all_found = problems_of(sys.argv[1])
    if chromium.installed():
        all_found += wide_blocks_of(sys.argv[1])
    else:
        print("chromium is not installed: whether blocks of code fit their column was not measured")
    for line in all_found:
        print(line, file=sys.stderr)
    sys.exit(1 if all_found else 0)
