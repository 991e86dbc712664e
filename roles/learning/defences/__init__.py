"""Defences inside local training: they change what a party computes, not how it travels.

Each has a package of its own: settings, which need no torch, and a guard, which is loaded by a learner that trains.
A defence of one's own is a subclass of `defence.Defence`, named as `package.module:Name`.
"""
