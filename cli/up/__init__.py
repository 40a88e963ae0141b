"""`stoker up`: runs control, agent and object store on this machine until Ctrl-C."""
