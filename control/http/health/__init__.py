"""The probes: `/healthz`, for supervisors, and `/ready`, for load balancers."""
