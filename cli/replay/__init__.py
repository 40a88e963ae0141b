"""`stoker replay`: runs a job again from its case, on this machine or on a node."""
