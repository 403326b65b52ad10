"""The pages in a real browser: by mouse, by keyboard, large, dark, narrow; and the pictures in the documentation."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graphopt import demo
from graphopt.audit.html import alone, inspection_html
from graphopt.audit.inspecting import inspect
from graphopt.rewrite import Level
from tests.engine.test_audit_html import report, tower, walked

IMAGES = Path(__file__).parents[2] / "docs" / "images"
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
FRAME = "(() => { const v = graphoptViews.left, t = performance.now(); for (let i = 0; i < 10; i++) v.draw(); return (performance.now() - t) / 10; })()"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    found = shutil.which("chromium") or shutil.which("google-chrome")
    with playwright.sync_playwright() as running:
        try:
            started = running.chromium.launch(args=FLAGS, executable_path=found)
        except playwright.Error as error:
            pytest.skip(f"no browser that Playwright can start: {str(error).splitlines()[0]}")
        yield started
        started.close()


class Shown:
    """A page, and whatever it complains about or asks for."""

    def __init__(self, browser: Any, file: Path, width: int = 1400, height: int = 900, scheme: str = "light") -> None:
        self.page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        self.problems: list[str] = []
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("console", lambda said: self.problems.append(said.text) if said.type == "error" else None)
        self.page.on("request", lambda asked: None if asked.url == file.as_uri() else self.problems.append(asked.url))
        self.page.goto(file.as_uri())

    def text(self, selector: str) -> str:
        return self.page.locator(selector).inner_text()

    def do(self, script: str) -> Any:
        return self.page.evaluate(f"() => {{ return {script} }}")

    def end(self) -> None:
        self.page.close()
        assert self.problems == []


def written(folder: Path, text: str) -> Path:
    (folder / "page.html").write_text(text)
    return folder / "page.html"


def test_by_mouse(browser: Any, tmp_path: Path) -> None:
    shown = Shown(browser, written(tmp_path, report(tower(200), Level.ALL)))
    page = shown.page
    assert shown.text("#count-before") == "1000 nodes, constants not drawn"
    assert shown.do(FRAME) < 200  # milliseconds, on a loaded machine without a graphics card
    before = shown.do("graphoptViews.left.scale")
    page.locator("#before").hover()
    page.mouse.wheel(0, -600)
    page.wait_for_function(f"() => graphoptViews.left.scale > {before}")
    page.locator("tr[data-event]").nth(3).click()
    assert shown.do("graphoptViews.left.picked.size") > 0
    assert "why" in shown.text("#detail")
    assert "gain" in shown.text("#detail")
    page.locator("#detail button.link").first.click()  # from the rewrite to a node
    assert "rewrites" in shown.text("#detail")
    page.locator("#detail section:has(h4:text('rewrites')) button.link").first.click()  # and back
    assert "why" in shown.text("#detail")
    page.locator("#filter").fill("identity")
    assert page.locator("#events tbody tr:visible").count() > 0
    shown.end()


def test_hovering_tells_type_and_shape(browser: Any, tmp_path: Path) -> None:
    shown = Shown(browser, written(tmp_path, inspection_html("m", inspect(tower(2)), alone(tower(2)))))
    page = shown.page
    place = shown.do(
        "(() => { const v = graphoptViews.left, b = v.canvas.getBoundingClientRect(), n = v.nodes[0];"
        " return [b.left + v.x + v.scale * n[0], b.top + v.y + v.scale * n[1]]; })()"
    )
    page.mouse.move(*place)
    page.wait_for_selector("#tip:visible")
    assert "c0: float[1,4,8,8]" in shown.text("#tip")
    page.mouse.click(*place)
    assert "features" not in shown.text("#detail")
    assert "w float[4,4,1,1]" in " ".join(shown.text("#detail").split())
    page.locator("#detail summary").first.click()
    assert "1, 1, 1" in shown.text("#detail")
    shown.end()


def test_by_keyboard_alone(browser: Any, tmp_path: Path) -> None:
    shown = Shown(browser, written(tmp_path, report(tower(20))))
    page = shown.page
    page.keyboard.press("/")
    page.keyboard.type("gate7")
    assert shown.do("graphoptViews.left.picked.size") > 0
    total = int(shown.text("#found").split()[0]) + int(shown.text("#found").split()[2])
    page.keyboard.press("Enter")
    assert shown.text("#found").startswith(f"1 of {total}")
    page.keyboard.press("Enter")
    assert shown.text("#found").startswith(f"2 of {total}")
    page.keyboard.press("Shift+Enter")
    assert shown.text("#found").startswith(f"1 of {total}")
    assert "gate7" in shown.text("#detail h3")
    page.keyboard.press("Escape")
    page.keyboard.press("n")
    first = shown.text("#detail h3")
    page.keyboard.press("n")
    assert shown.text("#detail h3") != first
    page.keyboard.press("p")
    assert shown.text("#detail h3") == first
    shown.do("graphoptViews.go('before', 0)")
    page.locator("#before").focus()
    for key, op in (("ArrowDown", "Relu"), ("ArrowDown", "Identity"), ("ArrowUp", "Relu")):
        page.keyboard.press(key)
        assert shown.text("#detail h3").startswith(op)
    page.keyboard.press("?")
    assert page.locator("#keys table").is_visible()
    shown.end()


def test_bodies_and_functions_are_entered(browser: Any, tmp_path: Path) -> None:
    shown = Shown(browser, written(tmp_path, inspection_html("m", inspect(walked()), alone(walked()))))
    page = shown.page
    shown.do("graphoptViews.go('before', graphoptViews.left.nodes.findIndex((n) => n[2] === 'If'))")
    page.locator("#detail button", has_text="else_branch").click()
    assert shown.text("#path-before") == "g › If › else_branch"
    assert shown.text("#count-before").startswith("1 node,")
    page.keyboard.press("Escape")
    assert shown.text("#path-before") == "g"
    page.locator("#graphs-before").select_option(label="local::twice")
    assert shown.text("#count-before").startswith("2 nodes")
    shown.end()


def test_ten_thousand_nodes(browser: Any, tmp_path: Path) -> None:
    shown = Shown(browser, written(tmp_path, inspection_html("m", inspect(tower(2000)), alone(tower(2000)))))
    assert shown.text("#count-before") == "10000 nodes, constants not drawn"
    near = shown.do(FRAME)
    shown.do("graphoptViews.left.all()")
    far = shown.do(FRAME)
    assert max(near, far) < 1000, f"{near:.0f} ms near, {far:.0f} ms all of it"
    shown.end()


def test_printing_shows_all_of_it(browser: Any, tmp_path: Path) -> None:
    shown = Shown(browser, written(tmp_path, report(tower(5))))
    shown.page.emulate_media(media="print")
    assert not shown.page.locator("#search").is_visible()
    assert shown.page.locator("#events").is_visible()
    assert shown.page.pdf()[:5] == b"%PDF-"
    shown.end()


PICTURES = {
    "viewer-light": (1400, 860, "light", ["graphoptViews.showEvent(graphoptViews.events.findIndex((e) => e.rule === 'fuse_bn_into_conv'))"]),
    "viewer-dark": (1400, 860, "dark", ["graphoptViews.go('after', 4)"]),
    "viewer-phone": (390, 844, "light", ["graphoptViews.go('before', 1)"]),
    "viewer-large": (1400, 860, "light", ["graphoptViews.showEvent(1000)"]),
    "viewer-model": (1400, 860, "light", ["graphoptViews.go('before', 3)", "document.querySelector('#detail details').open = true"]),
}  # fmt: skip


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_of_the_documentation(browser: Any, tmp_path: Path, name: str, request: pytest.FixtureRequest) -> None:
    """Each is made as the documentation has it; `--bless` writes it there."""
    width, height, scheme, acts = PICTURES[name]
    model = tower(2000) if name == "viewer-large" else demo.mobilenet_v2()
    text = (
        inspection_html("mobilenet_v2.onnx", inspect(model), alone(model)) if name == "viewer-model" else report(model)
    )
    shown = Shown(browser, written(tmp_path, text), width, height, scheme)
    shown.do("document.getElementById('graphs').scrollIntoView()")
    for act in acts:
        shown.do(act)
    place = IMAGES / f"{name}.png" if request.config.getoption("--bless") else tmp_path / "picture.png"
    shown.page.screenshot(path=place)
    assert (IMAGES / f"{name}.png").is_file()
    shown.end()
