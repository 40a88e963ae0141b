"""The families of image pipelines, each in a file of its own: what differs between diffusers' pipelines."""
