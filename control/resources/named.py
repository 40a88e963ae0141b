"""The resources that requests for endpoints, templates and pods name."""

from __future__ import annotations

from msgspec import Struct

from stoker.control.resources.catalog import Catalog
from stoker.control.resources.registries import Registries
from stoker.control.resources.secrets import ManagedSecrets
from stoker.control.resources.volumes import Volumes


class Named(Struct, frozen=True):
    """The resources that a request may name: its data centers and GPUs, its login at a registry, the secrets
    in its environment, and its volumes."""

    catalog: Catalog
    registries: Registries
    secrets: ManagedSecrets
    volumes: Volumes
