"""What an object was made of, in the words of a config: the arguments of its class."""

from __future__ import annotations

import inspect
import json
import pkgutil
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import lru_cache, partial
from pathlib import PurePath
from typing import Any, TypeVar

OWN = __name__.partition(".")[0]
KEPT = "_made_of"
"""Attribute under which an object keeps its arguments."""

Key = TypeVar("Key")
Value = TypeVar("Value")


class LiveError(TypeError):
    """A value that no config can hold, such as a loaded network."""


class _Live:
    """Stands for an argument that no config can hold."""


def keep_arguments(made: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Records constructor arguments on an object; unfitting ones reach `__init__`."""
    try:
        signature = _cached_signature(type(made).__init__)
        bound = signature.bind(made, *args, **kwargs)
    except (TypeError, ValueError):
        return
    kinds = signature.parameters
    arguments: dict[str, Any] = {}
    for index, (name, value) in enumerate(bound.arguments.items()):
        kind = kinds[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            arguments |= {key: _or_live(item) for key, item in value.items()}
        elif index:  # the first is the object itself
            arguments[name] = _Live if kind is inspect.Parameter.VAR_POSITIONAL and value else _or_live(value)
    object.__setattr__(made, KEPT, arguments)


@lru_cache(maxsize=512)
def _cached_signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


def _or_live(value: Any) -> Any:
    try:
        return as_config(value)
    except LiveError:
        return _Live


def as_config(value: Any) -> Any:
    """A value in YAML's types; objects become `_target_` with arguments.

    Raises:
        LiveError: it is, or holds, an object that does not know its arguments.
    """
    if isinstance(value, Enum | PurePath):
        value = value.value if isinstance(value, Enum) else str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {key: as_config(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        inner = [as_config(item) for item in value]
        return inner if isinstance(value, list | tuple) else sorted(inner, key=str)
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        return value.item()
    if isinstance(value, type) or not (is_dataclass(value) or KEPT in getattr(value, "__dict__", {})):
        raise LiveError(f"{type(value).__qualname__} holds no arguments that a config could name")
    return {"_target_": path_of(type(value)), **arguments_of(value)}


def arguments_of(made: Any) -> dict[str, Any]:
    """Constructor arguments by name; of dataclasses those beside defaults.

    Raises:
        LiveError: one of them cannot be written in a config, or they are not known.
    """
    arguments = getattr(made, "__dict__", {}).get(KEPT)
    if arguments is None and is_dataclass(made):
        usual = defaults_of(type(made))
        held = {field.name: as_config(getattr(made, field.name)) for field in fields(made) if field.init}
        return {name: value for name, value in held.items() if name not in usual or not equal(value, usual[name])}
    missing = "all" if arguments is None else next((name for name, value in arguments.items() if value is _Live), None)
    if missing is not None:
        raise LiveError(f"{type(made).__qualname__}: its argument {missing!r} is an object that no config can name")
    return {} if arguments is None else dict(arguments)


def defaults_of(made: type) -> dict[str, Any]:
    """Argument -> default, of those that have one which a config can hold."""
    factories = {
        field.name: field.default_factory
        for field in (fields(made) if is_dataclass(made) else ())
        if field.default_factory is not MISSING
    }
    try:
        parameters = inspect.signature(getattr(made, "__init__")).parameters  # noqa: B009 - of the class, not of an instance
    except (TypeError, ValueError):
        return {}
    usual: dict[str, Any] = {}
    for name, parameter in parameters.items():
        if parameter.default is not inspect.Parameter.empty:
            value = _or_live(factories[name]() if name in factories else parameter.default)
            usual |= {} if value is _Live else {name: value}
    return usual


def without_defaults(config: Mapping[str, Any], made: type, spelled: Collection[str] = ()) -> dict[str, Any]:
    """Config without arguments equal to defaults, so spelling them changes nothing.

    Args:
        config: `_target_` and arguments.
        made: the class that it names.
        spelled: arguments that stay in any case.
    """
    usual = defaults_of(made)
    return {
        key: value
        for key, value in config.items()
        if key in spelled or key not in usual or not equal(value, usual[key])
    }


def settled(config: Any) -> Any:
    """Config without default arguments at any depth."""
    if isinstance(config, list):
        return [settled(item) for item in config]
    if not isinstance(config, Mapping):
        return config
    inner = {key: settled(value) for key, value in config.items()}
    if not isinstance(config.get("_target_"), str):
        return inner
    try:
        target = pkgutil.resolve_name(config["_target_"])
    except (ImportError, AttributeError, ValueError):
        return inner
    return without_defaults(inner, target)


def make_model(model: Any) -> Any:
    """Model of a partial, without the name that its config gives; any other as it is."""
    if not isinstance(model, partial):
        return model
    return model.func(*model.args, **{key: value for key, value in model.keywords.items() if key != "name"})


def as_list(value: Any) -> list[Any]:
    """Value of a key as a list, given alone or in one."""
    return value if isinstance(value, list) else [value]


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Values by key; keys and values come in the order of the pairs."""
    groups: dict[Key, list[Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def equal(one: Any, other: Any) -> bool:
    """Whether two values are written alike: 1, 1.0 and true are three values."""
    return json.dumps(one, sort_keys=True, default=str) == json.dumps(other, sort_keys=True, default=str)


def path_of(made: type) -> str:
    """Dotted path of a class, shortest for ours."""
    parts = made.__module__.split(".")
    if parts[0] == OWN and "." not in made.__qualname__:
        for end in range(2, len(parts)):
            module = sys.modules.get(".".join(parts[:end]))
            if made.__name__ in getattr(module, "__all__", ()):
                return f"{'.'.join(parts[:end])}.{made.__name__}"
    return f"{made.__module__}.{made.__qualname__}"
