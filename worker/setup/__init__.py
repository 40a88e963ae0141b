"""Before the first job: the handler is loaded, checked, and set up."""
