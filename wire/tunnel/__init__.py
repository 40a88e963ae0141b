"""Many connections over one stream: the tunnel through which control reaches http workers of other hosts"""
