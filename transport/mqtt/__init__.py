"""Datagrams over an MQTT broker: the only room that knows aiomqtt.

Roles open `transport.MqttTransport`, observers a `link.MqttLink`, and both name topics with `topics`.
"""
