"""The training of `flux-mini` from scratch: makes scenes and their captions, and trains the autoencoder and
the transformer on them. Nothing here runs when a picture is generated."""
