"""The works behind the parts: key -> its entry in `works.bib`, in the order in which `cite` prints them."""

import re
from importlib import resources
from types import MappingProxyType

_TEXT = resources.files(__package__).joinpath("works.bib").read_text(encoding="utf-8")
WORKS = MappingProxyType({found[2]: found[1] for found in re.finditer(r"^(@\w+\{(\w+),\n(?:  .*\n)+\})$", _TEXT, re.M)})
