"""`stoker replay`: runs a failed job again on this machine, from the case that its endpoint kept."""
