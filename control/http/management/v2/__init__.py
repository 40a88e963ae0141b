"""Management v2, the field's second shape over the resources of /v1: `app.routes` has its operations."""
