"""Help of optional options: it shows the type they take, without a None among the choices."""

import dataclasses
import types
from typing import Any, Union, get_args

from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

registry = ConstructorRegistry()
"""For ``tyro.cli``."""


@registry.primitive_rule
def optional(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """``T | None`` is read as T."""
    parts = [part for part in get_args(info.type) if part is not types.NoneType]
    if info.type_origin not in (types.UnionType, Union) or len(parts) != 1:
        return None
    own = ConstructorRegistry.get_primitive_spec(PrimitiveTypeInfo.make(parts[0], info.markers))
    if not isinstance(own, PrimitiveConstructorSpec):
        return None
    return dataclasses.replace(
        own,
        is_instance=lambda value: value is None or own.is_instance(value),
        str_from_instance=lambda value: ["unset"] if value is None else own.str_from_instance(value),
    )
