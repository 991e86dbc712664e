"""From a torch model to a plan: which secret factor scales which parameter entry.

`trace` is the entrance; what it returns is a `PerturbationPlan`.
"""
