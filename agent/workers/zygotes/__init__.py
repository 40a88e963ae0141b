"""Python workers forked from a zygote, which has imported their libraries before."""
