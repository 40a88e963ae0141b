"""The workers, their devices, and the jobs that each worker gets."""
