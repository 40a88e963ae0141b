"""The shape of the OpenAI API: what a request means as jobs, and how their results read. No HTTP."""
