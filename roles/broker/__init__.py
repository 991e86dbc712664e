"""The message broker of a federation: mosquitto or the embedded one, its logins, certificates and port.

No key of a party ever comes here. `connect` makes the links of parties and observers, `notices` hands the roster out.
"""
