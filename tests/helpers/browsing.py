"""Debian's Chromium, in which reports are opened from disk."""

import shutil
from contextlib import contextmanager

CHROMIUM = shutil.which("chromium")


@contextmanager
def chromium():
    """Starts the browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--enable-unsafe-swiftshader", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


@contextmanager
def opened(browser, report):
    """Opens a report; at its end nothing may have been asked of the network, nor gone wrong."""
    context = browser.new_context(viewport={"width": 1300, "height": 850}, color_scheme="dark")
    page = context.new_page()
    page.set_default_timeout(20_000)  # the viewer of volumes without a graphics card, on a busy machine
    wrong = []
    page.on("console", lambda said: said.type in ("error", "warning") and wrong.append(said.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
    outside = []
    page.on("request", lambda asked: asked.url.startswith(("file:", "data:", "blob:")) or outside.append(asked.url))
    page.address = f"file://{report}/index.html"
    page.goto(page.address)
    yield page
    context.close()
    # Software has drawn what a graphics card would have; drivers warn of that.
    assert [said for said in wrong if "GPU stall" not in said and "GL Driver" not in said] == []
    assert outside == []


def expect(what):
    """Playwright's own, imported where there is a browser."""
    from playwright.sync_api import expect as wait

    return wait(what)
