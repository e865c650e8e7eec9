"""The documentation: Sphinx; MyST-NB runs the blocks of each page in a kernel and an empty folder of its own."""

import hashlib
import os
import re
import shutil
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE / "_ext"))

import page_gallery  # noqa: E402  after the path
from jupyter_cache import get_cache  # noqa: E402  after the path
from jupyter_cache.executors import utils  # noqa: E402  after the path
from page_docstrings import as_rst, parameters, short_signature  # noqa: E402  after the path
from page_reference import complete, split_example  # noqa: E402  after the path
from page_tables import generate  # noqa: E402  after the path

project = "performative"
copyright = "The performative maintainers, Apache-2.0"
version = release = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
html_title = f"performative {version}"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "mathml"]
exclude_patterns = ["_ext"]
highlight_language = "none"  # tables in docstrings, and equations that cannot be read
nitpicky = True
nitpick_ignore_regex = [("py:class", ".*"), ("py:(data|exc|obj)", r"(?!performative\.).*")]  # types in signatures

html_theme = "furo"
html_static_path = ["assets"]
html_css_files = ["site.css"]
html_favicon = "assets/mark.svg"
html_copy_source = False
html_math_renderer = "mathml"

myst_enable_extensions = ["attrs_block", "colon_fence", "deflist", "dollarmath"]
myst_dmath_allow_labels = False
myst_heading_anchors = 3
myst_links_external_new_tab = False

autodoc_default_options = {"exclude-members": "model_config"}  # of pydantic
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
toc_object_entries_show_parents = "hide"


def _package_digest() -> str:
    """What blocks gave is known until the package changes. No block uses the papers, which runs write to."""
    total = hashlib.sha256(sys.version.encode())
    for path in sorted((ROOT / "src" / "performative").rglob("*")):
        if path.suffix in (".py", ".toml", ".json") and "papers" not in path.parts:
            total.update(path.read_bytes())
    return total.hexdigest()[:24]


cache = ROOT / ".cache" / "docs"
nb_execution_mode = "cache"
nb_execution_cache_path = str(cache / _package_digest())
nb_execution_in_temp = True
nb_execution_raise_on_error = nb_execution_show_tb = True
nb_execution_timeout = 600
_execute = utils.executenb


def _execute_page(notebook, **settings):
    """What a block printed is one output, to the letter (nb_merge_streams strips spaces).

    Pages (which say their `file_format`) show what is printed; notebooks also show the value of a last line.
    """
    page = "file_format" in notebook.metadata
    values = [] if page else ["--InteractiveShell.ast_node_interactivity=last_expr"]
    return _execute(notebook, coalesce_streams=True, extra_arguments=values, **settings)


utils.executenb = _execute_page
for known in cache.iterdir() if cache.exists() else ():
    if str(known) != nb_execution_cache_path:
        shutil.rmtree(known)
get_cache(nb_execution_cache_path).list_cache_records()  # makes its tables before pages are read side by side

# A plain terminal of 88 columns on a CPU; blocks compile for seconds and run for milliseconds.
os.environ |= {"COLUMNS": "88", "NO_COLOR": "1", "PYTHONHASHSEED": "0", "JAX_PLATFORMS": "cpu", "MPLBACKEND": "Agg"}
os.environ |= {"XLA_FLAGS": "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"}
os.environ |= {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "IPYTHONDIR": str(cache.with_name("ipython"))}
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
profile = cache.with_name("ipython") / "profile_default"
(profile / "startup").mkdir(parents=True, exist_ok=True)
shutil.copy(HERE / "_ext" / "ipython_kernel_config.py", profile)
shutil.copy(HERE / "_ext" / "kernel_startup.py", profile / "startup")


def _refuse_what_is_fetched(app, failure) -> None:
    """No page loads anything from another host. Links that a reader may follow are not among it."""
    loaded = re.compile(r"<(?:script|img|iframe|source|link)\b[^>]*?\b(?:src|href)=[\"']?((?:https?:)?//[^\"'\s>]+)")
    for page in () if failure else sorted(Path(app.outdir).rglob("*.html")):
        if found := loaded.search(page.read_text(encoding="utf-8")):
            raise ValueError(f"{page.name} would load {found[1]} from elsewhere; the site must work offline.")


def _prepare(app) -> None:
    """Without executing pages nothing else is run either."""
    page_gallery.RUNS = app.config.nb_execution_mode != "off"


def setup(app) -> None:
    def read(app, page, source) -> None:
        if app.env.doc2path(page).suffix != ".ipynb":
            source[0] = generate(complete(source[0]))
        if app.config.nb_execution_mode == "off":  # then no kernel says what its language is
            source[0] = source[0].replace(
                "kernelspec:\n  name: python3\n", "kernelspec: {name: python3, language: ipython3}\n", 1
            )

    def describe(app, what, name, thing, options, lines) -> None:
        lines[:] = as_rst(split_example("\n".join(lines))[0], parameters(thing)).split("\n")

    def sign(app, what, name, thing, options, signature, returned):
        return signature and short_signature(signature), returned

    app.connect("builder-inited", _prepare)
    app.connect("source-read", read)
    app.connect("autodoc-process-docstring", describe, priority=400)  # before napoleon
    app.connect("autodoc-process-signature", sign)
    app.connect("build-finished", _refuse_what_is_fetched)
