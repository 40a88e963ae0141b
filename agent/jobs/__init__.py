"""Jobs on this node: taken, given their inputs, run as attempts, uploaded and reported."""
