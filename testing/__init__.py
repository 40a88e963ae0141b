"""Parts that only tests, benchmarks and the simulation use: an agent without devices, disks or processes."""
