"""Parts that only tests, benchmarks and the simulation use: parts without devices, disks, threads or
processes."""
