"""The invocation interface over HTTP: `app.make_app` builds it over a plane, `server.serve_http` runs it."""
