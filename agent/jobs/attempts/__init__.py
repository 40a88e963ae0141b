"""Attempts at jobs, from their Assign to their acknowledged outcome. Workers live in
`agent.workers.lifecycle`."""
