"""The pure core: values in, values out. No sockets, no event loop, no clock, no entropy of its own."""
