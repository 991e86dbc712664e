"""The chain of models: states and their hashes, votes and certificates, and what each side keeps of it.

The machines of `protocol.machines` ask `ChainMember` and `ChainKeeper`; schemes find a `ChainPoint` in their context.
"""
