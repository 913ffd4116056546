"""The scaling study: time and memory of a gradient by size of the net, compared with other libraries."""
