"""Workers as plain processes of this host: started, spoken with, and left nothing of."""
