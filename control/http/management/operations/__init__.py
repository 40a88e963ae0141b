"""The operations of the management API: one module for each kind of resource."""
