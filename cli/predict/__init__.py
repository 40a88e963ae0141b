"""`stoker predict`: runs a handler once on this machine, without control plane, agent or worker process."""
