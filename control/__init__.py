"""The control plane: takes jobs in, gives them to nodes, and keeps what became of them."""
