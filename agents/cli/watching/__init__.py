"""``susurrus watch``: what it shows of each kind of pipeline, one file each, made from public topics alone."""
