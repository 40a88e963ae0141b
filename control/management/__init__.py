"""What the management API does, below HTTP: endpoints, templates, pods, volumes, registries, keys, bills.

One module for each kind of resource. Each checks what it is asked for, stores it in one transaction, and then
tells the part of the plane that acts on it; errors are `control.errors`, with the field that is wrong.
"""

from stoker.control.management.management import Management

__all__ = ["Management"]
