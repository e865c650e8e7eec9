"""The table of old names on the migration page, generated from the list that keeps them working."""

from performative import _deprecated as old


def migration() -> str:
    """Everything that has been renamed."""
    rows = [(name, new) for name, new in old.OLD_MODULES.items() if not name.startswith("performative.theory.")]
    rows += [(f"{module}.{name}", new) for module, names in old.OLD_NAMES.items() for name, new in names.items()]
    rows += [(f"{_short(owner)}({name}=)", f"{_short(owner)}({new}=)")
             for owner, names in old.OLD_KEYWORDS.items() for name, new in names.items()]  # fmt: skip
    rows += [(f"{_short(owner)}.{name}", f"{_short(owner)}.{new}")
             for owner, names in old.OLD_ATTRIBUTES.items() for name, new in names.items()]  # fmt: skip
    rows += [(f'{name}="{value}"', f'{name}="{new}"') for name, values in old.OLD_VALUES.items()
             for value, new in values.items()]  # fmt: skip
    rows += [(f"a part's {name}", f"a part's {new}") for name, new in old.OLD_HOOKS.items()]
    rows += [(f'history["{name}"]', f'history["{new}"]') for name, new in old.OLD_RECORDS.items()]
    lines = ["| 0.1 | 0.2 |", "| --- | --- |", *(f"| `{was}` | `{now}` |" for was, now in rows)]
    return "\n".join(lines)


def _short(path: str) -> str:
    return ".".join(path.removesuffix(".__init__").split(".")[-2:])
