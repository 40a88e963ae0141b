"""`stoker dev`, `init`, `deploy`, `undeploy` and `logs`: apps, from their first file to their endpoints."""
