"""Http workers: programs that serve HTTP on $PORT, their health, and how control reaches them."""
