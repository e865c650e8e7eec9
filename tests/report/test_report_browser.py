"""Pages in a real browser: what is clicked, filtered and toggled changes what is drawn. Nothing is fetched."""

import shutil
from contextlib import contextmanager

import made_results
import pytest
from made_results import BAD

import performative as pf
from performative.report import results as reading
from performative.report.theme import PALETTES

api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium, chromium-browser or google-chrome")
DESKTOP, PHONE = {"width": 1100, "height": 900}, {"width": 390, "height": 844}
BLUE = "#0072B2"


@pytest.fixture(scope="module")
def browser():
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """One page of each kind but the audit's."""
    folder, patch = tmp_path_factory.mktemp("pages"), pytest.MonkeyPatch()
    patch.setattr(reading, "EXPERIMENTS", folder / "experiments")
    pf.report.write(made_results.history(), folder / "run.html", title=BAD)
    pf.report.write(made_results.sweep(), folder / "sweep.html")
    pf.report.write(made_results.results(folder / "results", folder / "experiments"), folder / "gallery.html")
    patch.undo()
    return folder


@contextmanager
def opened(browser, file, size=DESKTOP, dark=False):
    """The page once its script has run; at the end nothing may have gone wrong or been asked for."""
    touch = size is PHONE
    context = browser.new_context(
        viewport=size, color_scheme="dark" if dark else "light", offline=True, is_mobile=touch, has_touch=touch
    )
    page, wrong = context.new_page(), []
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    inside = ("data:", "blob:", file.as_uri())
    page.on("request", lambda request: None if request.url.startswith(inside) else wrong.append(request.url))
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-ready=yes]")
    yield page
    assert not wrong
    context.close()


def draw_all(page):
    """Plots are drawn when they come into view, or before the page is printed."""
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    until(
        page,
        "Array.from(document.querySelectorAll('.canvas')).every(c => c.querySelector('.main-svg')"
        " && c._fullLayout && c.data)",
    )


def until(page, holds):
    """Wait from here: the page's own policy forbids the evaluations that playwright's waiting needs."""
    for _ in range(200):
        if page.evaluate(holds):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never: {holds}")


def traces(page, plot, bands=False):
    """Keys of the traces that are shown, in the plot with that number."""
    return page.evaluate(
        "([plot, bands]) => document.querySelector(`[data-plot='${plot}'] .canvas`).data"
        ".filter(t => t.visible !== false && Boolean(t.meta.band) === bands).map(t => t.meta.key)",
        [plot, bands],
    )


def layout(page, plot, path):
    """A value of the layout as Plotly has it now, such as "yaxis.type"."""
    return page.evaluate(
        "([plot, path]) => path.split('.').reduce((o, k) => o[k],"
        " document.querySelector(`[data-plot='${plot}'] .canvas`)._fullLayout)",
        [plot, path],
    )


def color(page, plot):
    return page.evaluate(
        "plot => { const c = document.querySelector(`[data-plot='${plot}'] .canvas`);"
        " const paper = getComputedStyle(document.body).backgroundColor;"
        " return [c.data.at(-1).line.color, c._fullLayout.font.color, paper]; }",
        plot,
    )


def test_a_run_quantities_scales_and_paper(browser, pages):
    with opened(browser, pages / "run.html") as page:
        draw_all(page)
        assert page.title() == BAD and page.inner_text("h1") == BAD
        assert traces(page, 0) == ["p_fedavg"] == traces(page, 0, bands=True)
        assert (
            layout(page, 0, "yaxis.type") == "log" and layout(page, 0, "title.text") == "distance to the stable point"
        )
        first = page.locator("[data-plot='0']")
        assert first.locator("[data-title^=Download]").count() == 1  # the bar is there,
        assert first.locator("[data-title^=Share]").count() == 0  # without the button that uploads
        assert first.locator("path.js-line").count() == 2  # of the mean and of the band
        first.locator("[data-log=y]").click()
        assert layout(page, 0, "yaxis.type") == "linear"
        assert first.locator("[data-log=y]").get_attribute("aria-pressed") == "false"
        first.locator("[data-log=x]").press("Space")
        assert layout(page, 0, "xaxis.type") == "log"
        first.locator("[data-against]").select_option("samples drawn")
        assert layout(page, 0, "xaxis.title.text") == "samples drawn"
        assert page.evaluate("document.querySelector('.canvas').data.at(-1).x.at(-1)") == 1200
        blue, ink, paper = color(page, 0)
        assert blue == BLUE and paper == "rgb(255, 255, 255)"
        page.click("#theme")
        assert color(page, 0) == [PALETTES[True][0], "#e6eaef", "rgb(14, 16, 19)"]
        page.focus("#theme")
        page.keyboard.press("Enter")
        assert color(page, 0) == [blue, ink, paper]
        page.emulate_media(color_scheme="dark")  # the reader has chosen: the system no longer matters
        assert color(page, 0) == [blue, ink, paper]


@pytest.mark.slow
def test_hovering_tells_the_value_and_chips_hide(browser, pages):
    history = made_results.history()
    with opened(browser, pages / "run.html") as page:
        draw_all(page)
        plots = page.locator("figure[data-plot]")
        model = next(i for i in range(plots.count()) if layout(page, i, "title.text") == "theta")
        figure = page.locator(f"[data-plot='{model}']")
        figure.scroll_into_view_if_needed()
        assert figure.locator(".chip").all_inner_texts() == ["theta[0]", "theta[1]"]
        box = figure.locator(".nsewdrag").bounding_box()
        page.mouse.move(box["x"] + 1, box["y"] + box["height"] / 2)
        until(page, f"document.querySelector(`[data-plot='{model}'] .hoverlayer`).textContent !== ''")
        label = figure.locator(".hoverlayer").text_content()
        assert f"{history.theta[:, 0, 0].mean():.4g}" in label
        figure.locator(".chip").first.click()
        assert traces(page, model) == ["theta[1]"] == traces(page, model, bands=True)
        figure.locator(".chip").first.press("Enter")
        figure.locator(".chip").first.dblclick()
        assert traces(page, model) == ["theta[0]"]
        figure.locator(".chip").first.dblclick()
        assert len(traces(page, model)) == 2


@pytest.mark.slow
def test_a_dark_system(browser, pages):
    with opened(browser, pages / "run.html", dark=True) as page:
        draw_all(page)
        assert color(page, 0)[0] == PALETTES[True][0] and page.inner_text("#theme") == "Light"
        page.emulate_media(color_scheme="light")
        until(page, "document.getElementById('theme').textContent === 'Dark'")
        assert color(page, 0)[0] == BLUE


def test_a_sweep_filters_sorts_and_hides(browser, pages):
    found = made_results.sweep()
    with opened(browser, pages / "sweep.html") as page:
        draw_all(page)
        shown = page.locator("#shown")
        assert shown.inner_text() == "6 of 6 settings shown" and traces(page, 0) == list("012345")
        page.uncheck("input[data-tag='0'][value='1']")  # rate 0.2
        assert shown.inner_text() == "4 of 6 settings shown" and traces(page, 0) == list("0145")
        assert page.locator("tr[data-key]:visible").count() == 4
        page.uncheck("input[data-tag='1'][value='0']")  # one local step
        assert traces(page, 0) == ["1", "5"] == traces(page, 0, bands=True)
        page.locator("tr[data-key='5'] input").uncheck()
        assert shown.inner_text() == "1 of 6 settings shown" and traces(page, 0) == ["1"]
        page.select_option("[data-plot='0'] [data-pick]", label="performative risk")
        assert traces(page, 0) == ["1"] and layout(page, 0, "title.text") == "performative risk"
        page.click("#everything")
        assert shown.inner_text() == "6 of 6 settings shown" and traces(page, 0) == list("012345")
        page.locator("[data-plot='0'] .chip").first.click()
        assert traces(page, 0) == list("12345") and not page.locator("tr[data-key='0'] input").is_checked()

        def order():
            return [int(row.get_attribute("data-key")) for row in page.locator("tr[data-key]").all()]

        head = page.get_by_role("button", name="distance to the stable point")
        head.click()
        ranked = sorted(range(6), key=lambda i: found.scores()[i])
        assert order() == ranked and page.locator("th[aria-sort=ascending]").count() == 1
        assert page.locator("tr.best").get_attribute("data-key") == str(ranked[0])
        head.click()
        assert order() == ranked[::-1]
        page.select_option("[data-plot='1'] select", label="local_steps")
        draw_all(page)
        assert traces(page, 1) == ["rate 0.1", "rate 0.2", "rate 0.4"]


def test_ticks_of_a_logarithmic_axis_are_written_in_full(browser, tmp_path):
    """Below 60 the ticks say 10, 20 and 50; a digit alone (2 for 20) is what Plotly does by itself."""
    pf.report.write(made_results.history(scale=40.0), tmp_path / "run.html")
    with opened(browser, tmp_path / "run.html") as page:
        draw_all(page)
        assert layout(page, 0, "yaxis.type") == "log"
        shown = [float(text) for text in page.locator("[data-plot='0'] .ytick text").all_text_contents()]
        assert {10.0, 20.0, 50.0} <= set(shown) and shown == sorted(shown)


def test_a_gallery_searches_and_filters(browser, pages):
    with opened(browser, pages / "gallery.html") as page:
        count = page.locator("#count")
        assert count.inner_text() == "4 of 4 experiments, 8 of 8 claims shown"
        # Only what is near the window is drawn before it is looked at.
        drawn = page.locator(".canvas .main-svg").count()
        draw_all(page)
        assert drawn < page.locator(".canvas .main-svg").count()
        assert len(traces(page, 0)) == 3 and layout(page, 0, "xaxis.type") == "log"
        assert page.locator("[data-plot='0'] .chip").nth(1).inner_text() == BAD
        assert page.locator("[data-plot='0'] .mark").inner_text() == "floor of noise: 0.05"
        assert page.locator("[data-plot='1'] .barlayer .point").count() == 3
        names = page.locator("[data-plot='1'] .yaxislayer-above").text_content()
        assert BAD in names  # as it is: Plotly would make it bold, drop the tags and read the entity
        page.fill("#search", "CLAIM 1 fig2")
        assert count.inner_text() == "1 of 4 experiments, 1 of 8 claims shown"
        assert page.locator("article:visible h3").inner_text().startswith("Title of fig2")
        assert page.locator("h2[data-papers]:visible").all_inner_texts() == ["New results"]
        page.click("#reset")
        page.select_option("#verdict", "not tested")
        assert count.inner_text() == "2 of 4 experiments, 2 of 8 claims shown"
        page.select_option("#paper", "ours")
        assert count.inner_text() == "1 of 4 experiments, 1 of 8 claims shown"
        page.click("#reset")
        page.locator("[data-choose='p_fedavg|reproduced']").click()
        assert count.inner_text() == "2 of 4 experiments, 2 of 8 claims shown"
        page.click("#reset")
        page.fill("#search", "no such words")
        assert count.inner_text() == "0 of 4 experiments, 0 of 8 claims shown"
        page.click("#reset")
        page.locator("#ledger th button", has_text="verdict").click()
        verdicts = page.locator("#ledger tbody .verdict").all_inner_texts()
        assert len(verdicts) == 8 and verdicts == sorted(verdicts, key=lambda text: text.lstrip("✓≈✕– "))
        assert not page.locator("article").first.locator("small", has_text="by the slope").first.is_visible()
        page.locator("article").first.locator("summary").first.click()
        assert page.locator("article").first.locator("small", has_text="by the slope").first.is_visible()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["run", "sweep", "gallery"])
def test_a_phone(browser, pages, tmp_path, kind):
    with opened(browser, pages / f"{kind}.html", size=PHONE, dark=kind == "sweep") as page:
        draw_all(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        widths = page.evaluate("Array.from(document.querySelectorAll('.canvas .main-svg')).map(s => s.clientWidth)")
        assert widths and max(widths) <= 350
        # Fingers scroll the page; they do not zoom the plot.
        assert layout(page, 0, "dragmode") is False
        small = page.evaluate(
            "Array.from(document.querySelectorAll('button, select')).filter(b => b.offsetParent)"
            ".map(b => b.getBoundingClientRect().height).filter(h => h < 18)"
        )
        assert not small
        page.screenshot(path=tmp_path / "phone.png", full_page=True)
        assert (tmp_path / "phone.png").stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_an_audit(browser, tmp_path, size):
    from performative import audit
    from performative.audit.figures import pictures

    report = audit.audit_logs(made_results.logs(tmp_path / "logs"), drift="linear")
    file = pf.report.write(report, tmp_path / "audit.html")
    with opened(browser, file, size=size) as page:
        page.locator("summary", has_text="The statistics behind it").click()
        draw_all(page)
        assert page.locator(".canvas .main-svg").count() >= 10  # two layers each
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        place = list(pictures(report)).index("effect")
        effect = page.locator(f"[data-plot='{place}']")
        ticks = effect.locator(".yaxislayer-above .ytick").all_text_contents()
        assert ticks[0] == "pooled" and sorted(ticks[1:]) == sorted([BAD, "north"])
        assert effect.locator(".chip").count() == 4 == len(traces(page, place))
        effect.locator("[data-log=y]").click()
        assert layout(page, place, "xaxis.type") == "linear"
        effect.locator(".chip", has_text="walk").click()
        assert len(traces(page, place)) == 3
