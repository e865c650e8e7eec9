"""Wrappers that forward what they do not change."""

import functools
import inspect
import operator
from collections.abc import Callable
from typing import Any, TypeVar

C = TypeVar("C", bound=type)


def hands_on(*names: str) -> Callable[[C], C]:
    """Decorate a class to forward these properties and methods to `inner`, unless a subclass overrides them."""

    def method(name: str, like: Any) -> Any:
        @functools.wraps(like)
        def call(self: Any, *args: Any, **options: Any) -> Any:
            return getattr(self.inner, name)(*args, **options)

        return call

    def mark(kind: C) -> C:
        for name in names:
            own = getattr(kind, name)
            told = method(name, own) if inspect.isfunction(own) else property(operator.attrgetter(f"inner.{name}"))
            setattr(kind, name, told)
        return kind

    return mark
