"""The audit: attacks on recorded views, beside the undefended, the null and the oracle row.

The audit commands make a `request.Request` and hand it to `runner`; `experiments` says which rows measure an attack.
Programs call `ask.audit`.
"""
