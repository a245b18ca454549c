"""The site of the manual, for Sphinx: `scripts/site` makes it.

The pages are Markdown files of the repository, as GitHub shows them. Which files are pages, and where each stands in the navigation, is read from the links of `docs/README.md`:
there is no second list. A link to a file that is no page leads to the repository.
"""

from __future__ import annotations

import posixpath
import re
import shutil
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments.lexer import RegexLexer
from pygments.token import Comment, Keyword, Name, Number, Punctuation, String, Text
from sphinx.addnodes import download_reference, pending_xref
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

ROOT = Path(__file__).resolve().parents[2]
FILES = "https://github.com/proxyweir/weir"  # where the files are that are no pages

project = "Weir"
html_title = "Weir"
author = "the authors of Weir"
copyright = "the authors of Weir, Apache License 2.0"  # noqa: A001
extensions = ["myst_parser"]
root_doc = "README"
myst_heading_anchors = 6
html_theme = "furo"
html_copy_source = False
html_use_index = False
highlight_language = "none"  # of blocks that do not name theirs
html_show_sphinx = False
html_theme_options = {
    "source_repository": FILES,
    "source_branch": "main",
    "source_directory": "",
}
html_favicon = "icon.svg"

LINK = re.compile(r"\]\(([^)\s#:]+)(#[^)\s]*)?\)")  # to another file


def links(page: str, text: str) -> list[str]:
    """Returns the paths, from the root of the repository, of the Markdown files that `text` of the file `page` links, in their order."""
    found = (posixpath.normpath(posixpath.join(posixpath.dirname(page), link[1])) for link in LINK.finditer(text))
    return [path for path in dict.fromkeys(found) if path.endswith(".md") and (ROOT / path).is_file()]


def navigation() -> dict[str, list[tuple[str, list[str]]]]:
    """Returns for each page what is beneath it: pairs of a caption, which may be empty, and the paths of pages.

    Beneath the first page are the sections of `docs/README.md`, and a section of what only the first page links. Any other page is beneath the first one that links it.
    """
    first, contents = "README.md", "docs/README.md"
    beneath: dict[str, list[tuple[str, list[str]]]] = {first: [("", [contents])], contents: []}
    placed = {first, contents}
    queue: list[str] = []

    def place(above: str, caption: str, page: str, text: str) -> None:
        new = [path for path in links(page, text) if path not in placed]
        placed.update(new)
        queue.extend(new)
        if new:
            beneath[above].append((caption, new))

    for number, section in enumerate(re.split(r"^## ", (ROOT / contents).read_text(), flags=re.MULTILINE)):
        place(first, section.partition("\n")[0] if number else "", contents, section)
    for last in (False, True):
        if last:
            place(first, "Project", first, (ROOT / first).read_text())
        while queue:
            page = queue.pop(0)
            beneath[page] = []
            place(page, "", page, (ROOT / page).read_text())
    return beneath


NAVIGATION = navigation()
# Also pages of the manual and of examples that are linked nowhere, of which Sphinx then says so.
include_patterns = [*NAVIGATION, "docs/**.md", "examples/**/README.md"]


def add_navigation(app: Sphinx, docname: str, source: list[str]) -> None:
    """Adds to the text of a page the list of those beneath it, and to docs/log.md its table, so that a line of a log is found by the search."""
    if docname == "docs/log":
        source[0] += "\n```{csv-table}\n:file: log.csv\n:header-rows: 1\n:class: log\n```\n"
    for caption, paths in NAVIGATION.get(docname + ".md", []):
        heading = f":caption: {caption}\n" if caption else ""
        entries = "\n".join("/" + path.removesuffix(".md") for path in paths)
        source[0] += f"\n\n```{{toctree}}\n:hidden:\n{heading}\n{entries}\n```\n"


class ToRepository(SphinxTransform):
    """Makes links to files and folders that are no pages lead to the repository."""

    default_priority = 10

    def apply(self) -> None:
        """Replaces them in the page that has just been read."""
        folder = (ROOT / self.env.docname).parent
        for link in list(self.document.findall(lambda node: isinstance(node, (download_reference, pending_xref)))):
            path = (folder / link["reftarget"]).resolve()
            if isinstance(link, download_reference) or link.get("refdomain") != "doc" and path.is_dir():
                kind = "tree" if path.is_dir() else "blob"
                link.replace_self(nodes.reference("", "", *link.children, refuri=f"{FILES}/{kind}/main/{path.relative_to(ROOT)}", internal=False))


class Caddyfile(RegexLexer):
    """Colours a Caddyfile: directives, matchers, placeholders, durations and rates."""

    name = "Caddyfile"
    aliases = ["caddyfile"]
    tokens = {
        "root": [
            (r"(?<!\S)#.*", Comment.Single),
            (r"\"(\\.|[^\"\\])*\"|`[^`]*`", String),
            (r"\{[^{}\s]+\}", Name.Variable),
            (r"[{}](?!\S)", Punctuation),
            (r"^[ \t]*[a-z_]+(?!\S)", Keyword),
            (r"@\S+", Name.Decorator),
            (r"[0-9][^\s{}]*", Number),
            (r"[^\s{}\"`]+|[{}\"`]|\s+", Text),
        ]
    }


def add_for_keyboards(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """Lets a keyboard scroll what is wider than the window, and gives the captions of the navigation their level, which the theme does not."""
    if "body" in context:
        context["body"] = context["body"].replace("<pre>", '<pre tabindex="0">').replace('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper')
    context["furo_navigation_tree"] = context["furo_navigation_tree"].replace('role="heading"', 'role="heading" aria-level="2"')


def finish(app: Sphinx, failure: Exception | None) -> None:
    """Makes the first page also the one that a folder's address shows, and copies the pictures that pages show by HTML."""
    if not failure:
        for picture in (ROOT / "docs/images").glob("*.png"):
            (Path(app.outdir) / "docs/images").mkdir(exist_ok=True)
            shutil.copy(picture, Path(app.outdir) / "docs/images")
        shutil.copy(Path(app.outdir) / "README.html", Path(app.outdir) / "index.html")


def setup(app: Sphinx) -> None:
    """Connects all of it, as Sphinx wants it."""
    app.add_lexer("caddyfile", Caddyfile)
    app.add_transform(ToRepository)
    app.connect("source-read", add_navigation)
    app.connect("html-page-context", add_for_keyboards, priority=900)  # after the theme
    app.connect("build-finished", finish)
