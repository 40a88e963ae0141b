"""What leaves this node for an object store: payloads, output files, and the requests that control signs."""
