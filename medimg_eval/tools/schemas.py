"""JSON schemas of arguments: from type hints, and whether arguments fit one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

_TYPES = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    dict: "object",
    list: "array",
    tuple: "array",
}
_CHECKED: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}


def schema_of(hint: Any) -> dict[str, Any]:
    """JSON schema of a type hint; empty where inexpressible.

    >>> schema_of(list[float])
    {'type': 'array', 'items': {'type': 'number'}}
    """
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"type": _TYPES[type(inner[0])], "enum": list(inner)}
    if origin in (Union, UnionType):
        kinds = [kind for kind in inner if kind is not type(None)]
        return schema_of(kinds[0]) if len(kinds) == 1 else {"anyOf": [schema_of(kind) for kind in kinds]}
    if origin in (list, tuple, Sequence) and inner:
        return {"type": "array", "items": schema_of(inner[0])}
    kind = _TYPES.get(origin or hint)
    return {"type": kind} if kind else {}


def misfits(value: Any, schema: Mapping[str, Any], where: str) -> Iterator[str]:
    """Yields violations of a JSON schema, for tools' keywords.

    >>> list(misfits({"t": "x"}, {"type": "object", "properties": {"t": {"type": "number"}}}, "arguments"))
    ["t: expected number, got 'x'"]
    """
    if any_of := schema.get("anyOf") or schema.get("oneOf"):
        if all(next(misfits(value, option, where), "") for option in any_of):
            yield f"{where}: {value!r:.60} fits none of the kinds it may be"
        return
    kinds = schema.get("type", ())
    kinds = [kinds] if isinstance(kinds, str) else list(kinds)
    if kinds and not any(_is_of(value, kind) for kind in kinds):
        yield f"{where}: expected {' or '.join(kinds)}, got {value!r:.60}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where}: expected one of {', '.join(map(str, schema['enum']))}, got {value!r:.60}"
    if _is_of(value, "number") and not schema.get("minimum", -math.inf) <= value <= schema.get("maximum", math.inf):
        yield f"{where}: {value:g} is out of range"
    if isinstance(value, Mapping):
        yield from _misfits_of_object(value, schema, where)
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        for index, item in enumerate(value):
            yield from misfits(item, schema["items"], f"{where}[{index}]")


def _is_of(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _CHECKED.get(kind, (object,)))


def _misfits_of_object(value: Mapping[str, Any], schema: Mapping[str, Any], where: str) -> Iterator[str]:
    properties = schema.get("properties", {})
    if lacking := [key for key in schema.get("required", ()) if key not in value]:
        yield f"{where}: {', '.join(lacking)} is missing"
    odd = [str(key) for key in value if key not in properties]
    if odd and schema.get("additionalProperties", True) is False:
        yield f"{where}: there is no argument {', '.join(odd)}; it takes {', '.join(properties) or 'none'}"
    for key, item in value.items():
        if key in properties:
            yield from misfits(item, properties[key], key)
