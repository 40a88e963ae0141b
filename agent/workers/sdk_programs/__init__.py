"""Protocol workers: programs that request their jobs over HTTP on loopback, as the RunPod SDKs do."""
