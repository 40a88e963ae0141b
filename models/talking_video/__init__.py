"""Talking videos from an image and audio, with InfiniteTalk's audio conditioning on Wan 2.1."""
