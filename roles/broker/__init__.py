"""The message broker of a federation: mosquitto or the embedded one, its logins and certificates.

No key of a party ever comes here.
"""
