"""`pf.cite` knows every part and recipe, and gives BibTeX that a reader of BibTeX accepts."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest
from public_parts import public_parts, slot_of

import performative as pf
from performative import recipes
from performative.facts import AbstractPart, is_ours
from performative.papers.citations.bibliography import WORKS
from performative.types import number

WHERE = {"inproceedings": "booktitle", "article": "journal", "misc": "howpublished", "techreport": "institution"}


def _marked(kind=AbstractPart):
    """Classes of ours that say what they rest on, whatever folder they stand in."""
    for below in kind.__subclasses__():
        if "references" in vars(below) and is_ours(below):
            yield below
        yield from _marked(below)


def _functions():
    """Public functions that do."""
    modules = [getattr(pf, name) for name in (*pf.__all__, "audit", "data")]
    for module in (pf, *(one for one in modules if inspect.ismodule(one))):
        things = (getattr(module, name) for name in module.__all__)
        yield from (thing for thing in things if inspect.isfunction(thing) and hasattr(thing, "references"))


def _keys(text):
    return set(re.findall(r"^@\w+\{(\w+),$", text, flags=re.MULTILINE)) - {"performative"}


def test_every_concrete_part_has_an_entry():
    silent = {name: part for name, part in public_parts().items() if "references" not in vars(part)}
    missing = [name for name, part in silent.items() if slot_of(part) != "loss"]  # textbook losses rest on nobody
    assert not missing, f"say in `references` of {missing} what they rest on, () for nothing."
    assert len(public_parts()) > 60


def test_every_recipe_and_case_has_an_entry():
    assert not [name for name in recipes.__all__ if not getattr(recipes, name).references]
    ready = [name for name in pf.cases.__all__ if inspect.isfunction(getattr(pf.cases, name))]
    made_up = {"credit", "credit_table"}
    assert not [name for name in ready if name not in made_up and not getattr(pf.cases, name).references]


def test_every_key_has_a_work_and_every_work_is_used():
    source = "\n".join(
        path.read_text() for path in Path(pf.__file__).parent.rglob("*.py") if path.stem != "bibliography"
    )
    assert not [key for key in WORKS if f'"{key}"' not in source]
    told = [keys for thing in (*_marked(), *_functions()) for keys in thing.references]
    assert set(told) <= set(WORKS) and len(told) > 100


@pytest.mark.parametrize("name", sorted({thing.__name__ for thing in (*_marked(), *_functions())}))
def test_entries_are_whole(name):
    text = pf.cite(name)
    assert text.count("{") == text.count("}")
    for entry in text.strip().split("\n\n"):
        assert re.fullmatch(r"@(\w+)\{\w+,\n(  \w+ = \{.+\},\n)+\}", entry), entry
        needed = {
            "inproceedings": "booktitle",
            "article": "journal",
            "misc": "howpublished",
            "techreport": "institution",
        }
        kind = entry[1 : entry.index("{")]
        assert {"author", "title", needed[kind]} <= set(re.findall(r"^  (\w+) =", entry, flags=re.MULTILINE))
        assert entry.isascii(), "classic BibTeX reads no other letters"
        text_mode = re.sub(r"\$[^$]*\$", "", entry.split("\n", 1)[1])
        assert not re.search(r"[%&#_^]", text_mode), f"LaTeX stumbles over {entry}"


def test_the_software_is_always_first_with_its_version():
    assert pf.cite().startswith("@misc{performative,")
    assert f"Version {pf.__version__}" in pf.cite("Krum")


def test_wrappers_count_with_what_they_hold():
    algorithm = pf.p_fedavg(
        0.1,
        estimator=pf.estimators.Prox(pf.estimators.Filtered(pf.estimators.Performative(9)), 0.1),
        aggregator=pf.aggregators.ServerOpt(pf.aggregators.Nova(pf.aggregators.Median()), pf.optimizers.Yogi()),
        channel=pf.channels.Quantized(8),
    )
    assert _keys(pf.cite(algorithm)) == {
        "jin2024performative", "perdomo2020performative", "li2020fedprox", "zheng2024profl", "izzo2021learn",
        "reddi2021adaptive", "wang2020tackling", "yin2018byzantine", "zaheer2018adaptive", "alistarh2017qsgd",
        "karimireddy2019error",
    }  # fmt: skip


def test_settings_count():
    quantized = pf.channels.Quantized
    assert _keys(pf.cite(quantized(8))) - _keys(pf.cite(quantized(8, feedback=False))) == {"karimireddy2019error"}
    x, y = np.zeros((1, 2, 1)), np.array([[0, 1]])
    evade = pf.populations.Strategic(x, y, 1.0, response="evade")
    assert _keys(pf.cite(evade)) - _keys(pf.cite(pf.populations.Strategic(x, y, 1.0))) == {"li2024clipped"}
    secure = pf.cite(pf.Privacy(1e-5, noise="secure"))
    assert _keys(secure) - _keys(pf.cite(pf.Privacy(1e-5))) == {"canonne2020discrete"}


def test_only_what_is_deployed_is_performative():
    assert "perdomo2020performative" not in pf.cite(pf.fedavg(0.1))
    assert "perdomo2020performative" in pf.cite(pf.fednova(0.1, deploy="round"))
    assert "mendlerdunner2020stochastic" in pf.cite(pf.fednova(0.1, deploy=pf.Every(3)))
    assert "mendlerdunner2020stochastic" not in pf.cite(pf.fednova(0.1))


def test_problems_recipes_and_histories():
    problem = pf.Problem(pf.losses.squared, pf.populations.Sluggish(pf.populations.Gaussian([0.0, 1.0], 0.5, 1.0), 0.5))
    assert _keys(pf.cite(problem)) == {"brown2022stateful", "jin2024performative"}
    assert pf.cite(pf.scaffold) == pf.cite("scaffold")
    algorithm = pf.fedexp(0.1, participation=pf.SchemeOne(1), deploy=pf.Every(2))
    history = pf.run(problem, algorithm, rounds=2, theta=0.0, record=pf.Record(risks=False))
    assert _keys(pf.cite(history)) == _keys(pf.cite(algorithm)) > {"jhunjhunwala2023fedexp", "li2020convergence"}


def test_a_part_of_somebody_else_is_named():
    class Doubled(pf.schedules.AbstractSchedule):
        value: float = number()

        def __call__(self, t):
            return 2 * self.value

    text = pf.cite(pf.fedavg(Doubled(0.1)))
    assert text.rstrip().splitlines()[-1].startswith("% Not from this package") and "Doubled" in text


def test_a_part_of_somebody_else_may_say_what_it_rests_on():
    class Halved(pf.schedules.AbstractSchedule):
        references = ("perdomo2020performative", "@misc{own,\n  title = {{Mine}},\n}")
        value: float = number()

        def __call__(self, t):
            return self.value / 2

    class Quartered(Halved):
        """It inherits no references."""

    class Slip(Halved):
        references = ("perdomo2020",)

    text = pf.cite(pf.fedavg(Halved(0.1)))
    assert "@misc{own," in text and "perdomo2020performative" in _keys(text) and "Not from this package" not in text
    for wrong in (Quartered(0.1), Slip(0.1)):
        assert f"sources: {type(wrong).__name__}" in pf.cite(wrong)


def test_what_cannot_be_cited_is_refused():
    with pytest.raises(ValueError, match=r"cite\('p_fedav'\).*Did you mean 'p_fedavg'"):
        pf.cite("p_fedav")
    with pytest.raises(TypeError, match="got float"):
        pf.cite(0.5)
