"""Objects of the management API in the store: endpoints, templates, pods, volumes, logins, secrets, keys."""
