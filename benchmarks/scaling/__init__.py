"""`meshnn scaling`: time and memory of a gradient against the size of a net, ours and others'. Nothing imports it."""
