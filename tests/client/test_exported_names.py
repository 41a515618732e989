"""What `ottla.client` exports is enough to make what its methods take."""

from __future__ import annotations

import dataclasses
import typing

import ottla.client
from ottla.client import Acl, AclFilter, AclOperation, PatternType, PermissionType, ResourceType


def test_the_types_of_the_fields_of_what_is_exported_are_exported() -> None:
    exported = {getattr(ottla.client, name) for name in ottla.client.__all__}
    missing = {
        f"{kind.__name__}.{field}: {part.__name__}"
        for kind in exported
        if dataclasses.is_dataclass(kind)
        for field, hint in typing.get_type_hints(kind).items()
        for part in (hint, *typing.get_args(hint))
        if isinstance(part, type) and part.__module__.startswith("ottla.") and part not in exported
    }
    assert not missing


def test_an_acl_and_its_filter_are_made_of_exported_names() -> None:
    acl = Acl(ResourceType.TOPIC, "orders", "User:alice", AclOperation.READ, PermissionType.DENY)
    assert str(acl) == "User:alice may not READ TOPIC orders"
    assert AclFilter(pattern_type=PatternType.MATCH).resource_type is ResourceType.ANY
