"""Datagrams over an MQTT broker: the only room that knows aiomqtt.

Roles open an `MqttTransport`, observers a `link.MqttLink`, and both name topics with `topics`.
"""
