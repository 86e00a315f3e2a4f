"""Raw HTTP and WebSocket bytes: what no library would send, and every frame that comes back.

Nothing here judges; the tests do.  A connection's own end is one of the events that it
reads: ("closed", how) with how "fin" or "reset".
"""
import base64
import hashlib
import os
import socket
import struct

TEXT, BINARY, CLOSE, PING, PONG, CONTINUATION = 1, 2, 8, 9, 10, 0
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def masked(payload, key):
    """XOR of a whole payload at once: a loop over 32 MiB would be the slow client."""
    n = len(payload)
    if not n:
        return b""
    pad = (key * (n // 4 + 1))[:n]
    return (int.from_bytes(payload, "little") ^ int.from_bytes(pad, "little")).to_bytes(n, "little")


def frame(opcode, payload=b"", fin=True, mask=True, reserved=0, length=None, form=None):
    """One frame of a client.  length: what the header says in place of the truth; form: 7, 16
    or 64, the width of the length in place of the shortest; mask: False, True or the key."""
    n = len(payload) if length is None else length
    head = bytes([(0x80 if fin else 0) | reserved << 4 | opcode])
    bit = 0x80 if mask else 0
    form = form or (7 if n < 126 else 16 if n < 65536 else 64)
    if form == 7:
        head += bytes([bit | n])
    elif form == 16:
        head += bytes([bit | 126]) + struct.pack(">H", n)
    else:
        head += bytes([bit | 127]) + struct.pack(">Q", n)
    if mask:
        key = mask if isinstance(mask, bytes) else os.urandom(4)
        return head + key + masked(payload, key)
    return head + payload


def close_frame(code=None, reason=b"", **options):
    return frame(CLOSE, (b"" if code is None else struct.pack(">H", code)) + reason, **options)


def fragments(payload, size, opcode=TEXT):
    """The payload in frames of `size` bytes; an empty payload is one frame."""
    parts = [payload[i:i + size] for i in range(0, len(payload), size)] or [b""]
    return [frame(opcode if i == 0 else CONTINUATION, p, fin=i == len(parts) - 1)
            for i, p in enumerate(parts)]


def handshake(path="/v1/responses", key=None, headers=(), drop=(), version="HTTP/1.1",
              method="GET"):
    """The bytes of an upgrade; `headers` are added or replace, `drop` are left out."""
    fields = {"Host": "localhost", "Upgrade": "websocket", "Connection": "Upgrade",
              "Sec-WebSocket-Version": "13",
              "Sec-WebSocket-Key": key or base64.b64encode(os.urandom(16)).decode()}
    for name, value in headers:
        fields[name] = value
    lines = ["%s %s %s" % (method, path, version)]
    lines += ["%s: %s" % (n, v) for n, v in fields.items() if n not in drop]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def accept_of(key):
    return base64.b64encode(hashlib.sha1(key.encode() + GUID).digest()).decode()


class Reader:
    """A socket that is read in pieces and handed out by length."""

    def __init__(self, s):
        self.s, self.data, self.end = s, bytearray(), None

    def more(self):
        if self.end:
            return False
        try:
            piece = self.s.recv(262144)
            if not piece:
                self.end = "fin"
        except (ConnectionResetError, BrokenPipeError):
            piece, self.end = b"", "reset"
        self.data += piece
        return bool(piece)

    def exactly(self, n):
        """n bytes, or None at the end of the connection."""
        while len(self.data) < n:
            if not self.more():
                return None
        out = bytes(self.data[:n])
        del self.data[:n]
        return out

    def until(self, mark):
        while mark not in self.data:
            if not self.more():
                return None
        return self.exactly(self.data.index(mark) + len(mark))


class WebSocket:
    """A client's end of a WebSocket of which every byte is ours."""

    def __init__(self, d, headers=(), receive_buffer=None, s=None, path="/v1/responses"):
        self.s = s or d.connect(receive_buffer=receive_buffer)
        self.reader = Reader(self.s)
        key = base64.b64encode(os.urandom(16)).decode()
        self.s.sendall(handshake(path, key=key, headers=headers))
        self.head = self.reader.until(b"\r\n\r\n")
        assert self.head, "no reply to the handshake"
        assert self.head.startswith(b"HTTP/1.1 101 "), self.head
        assert accept_of(key).encode() in self.head, self.head

    def send(self, *frames, chop=None):
        """In one write, or in writes of `chop` bytes, each a segment of its own.  What the
        daemon does not want any more is no error here: what it says is what counts."""
        data = b"".join(frames)
        try:
            if not chop:
                self.s.sendall(data)
                return
            self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for i in range(0, len(data), chop):
                self.s.sendall(data[i:i + chop])
        except (BrokenPipeError, ConnectionResetError):
            pass

    def read(self):
        """("text" | "binary" | "ping" | "pong", payload), ("close", code or None, reason), or
        ("closed", "fin" | "reset").  The daemon's own framing is held to the RFC here."""
        head = self.reader.exactly(2)
        if head is None:
            return ("closed", self.reader.end)
        a, b = head
        assert a & 0x70 == 0, "reserved bits from the server: %#x" % a
        assert not b & 0x80, "a server must not mask"
        n = b & 0x7f
        if n == 126:
            n = struct.unpack(">H", self.reader.exactly(2))[0]
            assert n >= 126, "a length in 16 bits that fits 7"
        elif n == 127:
            n = struct.unpack(">Q", self.reader.exactly(8))[0]
            assert n >= 65536, "a length in 64 bits that fits 16"
        payload = self.reader.exactly(n) if n else b""
        if payload is None:
            return ("closed", self.reader.end)
        opcode = a & 15
        if opcode & 8:
            assert a & 0x80 and n < 126, "a control frame of %d bytes, FIN %d" % (n, a >> 7)
        assert a & 0x80, "the daemon sends whole messages"
        if opcode == CLOSE:
            assert n != 1, "a close of one byte"
            return ("close", struct.unpack(">H", payload[:2])[0] if n else None, payload[2:])
        return ({TEXT: "text", BINARY: "binary", PING: "ping", PONG: "pong"}[opcode], payload)

    def rest(self):
        """All that comes to the end of the connection, its end included."""
        out = [self.read()]
        while out[-1][0] != "closed":
            out.append(self.read())
        return out

    def finish(self):
        """No more from this end; what comes is still read."""
        try:
            self.s.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self):
        self.s.close()

    def reset(self):
        """Gone without a word, as a process that was killed with unread data."""
        self.s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.s.close()
