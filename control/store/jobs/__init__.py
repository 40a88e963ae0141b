"""Jobs in the store, from submission to the sweep of what they left."""
