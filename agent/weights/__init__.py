"""The weights that workers need: fetched, verified and kept on this node, within a bound"""
