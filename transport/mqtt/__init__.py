"""Datagrams over an MQTT broker: the only room that knows aiomqtt.

Roles open `transport.MqttTransport` and name topics with `topics`.
"""
