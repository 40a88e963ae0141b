"""`stoker control`: the control process, its database, its object store and its tokens."""
