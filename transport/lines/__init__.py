"""Lines: a handshake for each direction between two parties, and sealed datagrams over what it agreed.

`book.LineBook` is the entrance. It has no socket, no clock and no cryptography of its own: that is handed in as a
`transport.base.LineCrypto`, and the bodies of handshakes are opaque here. Framing (`transport.framing`) sits on top.
"""
