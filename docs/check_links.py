"""Follows every link of the built pages that stays within them: `python docs/check_links.py docs/_build/html`.

Sphinx warns of links between Markdown pages; this also sees those of the theme, of cards, tables, notebooks and plain
HTML. Links that leave the site are not followed, so it needs no network.
"""

import re
import sys
from functools import cache
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

LINK = re.compile(r'<(?:a|img|link|script)\b[^>]*?\s(?:href|src)="([^"]*)"')
ANCHOR = re.compile(r'<[a-z][^>]*?\sid="([^"]*)"')


def broken(site: Path) -> list[str]:
    """Returns a line for each link that leads nowhere: page, link, and what is missing."""

    @cache
    def text_of(page: Path) -> str:
        return page.read_text(encoding="utf-8")

    @cache
    def anchors_of(page: Path) -> frozenset[str]:
        return frozenset(map(unescape, ANCHOR.findall(text_of(page))))

    found = []
    for page in pages_of(site):
        for link in sorted(set(LINK.findall(text_of(page)))):
            parts = urlsplit(unescape(link))
            if parts.scheme or parts.netloc:
                continue
            target = page if not parts.path else (page.parent / unquote(parts.path)).resolve()
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(parts.fragment)
            if not target.is_file():
                found.append(f"{page.relative_to(site)}: {link}: there is no such file")
            elif anchor and target.suffix == ".html" and anchor not in anchors_of(target):
                found.append(f"{page.relative_to(site)}: {link}: the page has no such place")
    return found


def pages_of(site: Path) -> list[Path]:
    """The pages of a site; what the theme keeps in `_static` are none."""
    return [page for page in sorted(site.rglob("*.html")) if page.relative_to(site).parts[0] != "_static"]


def main(site: str) -> None:
    """Prints the links that lead nowhere, and exits with 1 if there are any."""
    folder = Path(site).resolve()
    lines = broken(folder)
    sys.stdout.writelines(f"{line}\n" for line in lines)
    if lines or not pages_of(folder):
        sys.exit(f"{len(lines)} links of {len(pages_of(folder))} pages lead nowhere")


if __name__ == "__main__":
    main(*sys.argv[1:])
