"""Reliable messages over datagrams that get lost, doubled, delayed or damaged, without a socket or a clock.

`endpoint.Endpoint` is the entrance; real time is added by `transport.reliable`.
"""
