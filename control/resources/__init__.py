"""The resources of the management API, without HTTP: endpoints, templates, pods, volumes, registries, keys,
bills.

There is one module for each kind of resource. Each checks a request, stores the change in one transaction,
and then notifies the part of the plane that acts on it. Errors are those of `control.errors`, and name the
wrong field.
"""

from stoker.control.resources.management import ManagedResources
