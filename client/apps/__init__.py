"""Apps: functions that run on a platform's workers, from their decorator to what is sent for them."""
