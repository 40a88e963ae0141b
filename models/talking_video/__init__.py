"""One picture and one voice become a talking video: InfiniteTalk's audio conditioning on Wan 2.1."""
