"""The management API over HTTP, below /v1: `app.make_management_app` builds it over a plane."""
