"""The nodes: who may come in, what each is believed, and one session of each."""
