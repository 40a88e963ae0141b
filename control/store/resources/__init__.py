"""The objects that the management API makes, in the store: endpoints, templates, pods, volumes, logins,
secrets, keys."""
