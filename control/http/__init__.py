"""The doors of control over HTTP: calls of jobs, management, the gateway, and OpenAI's shape."""
