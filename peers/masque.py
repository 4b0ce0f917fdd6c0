"""UDP through HTTP/3 (CONNECT-UDP, RFC 9298) on aioquic: a proxy, and a client that forwards a local port.

    masque.py proxy --listen ADDR:PORT --cert FILE --key FILE --token TOKEN [--capsules]
    masque.py tunnel --proxy ADDR:PORT --local ADDR:PORT --to HOST:PORT --cert FILE --token TOKEN [--capsules]

With --capsules, packets are sent in DATAGRAM capsules; both forms are received.
"""

import argparse
import asyncio
import ssl
from urllib.parse import quote, unquote

from aioquic.asyncio import QuicConnectionProtocol, connect, serve
from aioquic.buffer import Buffer, BufferReadError, encode_uint_var
from aioquic.h3.connection import H3_ALPN, H3Connection, Setting
from aioquic.h3.events import DatagramReceived, DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, StreamReset

# The type of DATAGRAM capsules (RFC 9297 §3.5), and the context of UDP payloads (RFC 9298 §4).
DATAGRAM_CAPSULE = 0
UDP_CONTEXT = b"\0"
# Datagrams that wait for the congestion window; more are dropped, as on any queue.
MOST_WAITING = 150
# The size of a UDP datagram of the connection to the proxy, and the largest payload in it. A larger one
# would never leave aioquic's queue, nor would those behind it.
OUTER_SIZE = 1350
LARGEST = OUTER_SIZE - 60
MAX_CAPSULE = 65536


def endpoint(text):
    host, port = text.rsplit(":", 1)
    return host.strip("[]"), int(port)


def printed(address):
    return "%s:%d" % address[:2]


def configuration(is_client):
    return QuicConfiguration(
        alpn_protocols=H3_ALPN,
        is_client=is_client,
        max_datagram_frame_size=65536,
        # A QUIC connection inside needs datagrams of 1,200 bytes.
        max_datagram_size=OUTER_SIZE,
    )


class Http(H3Connection):
    """HTTP/3 with datagrams; aioquic announces them together with WebTransport only."""

    def _get_local_settings(self):
        return {**super()._get_local_settings(), Setting.H3_DATAGRAM: 1}


class Tunnel:
    """One tunnel: `deliver` gets the UDP payloads that arrive."""

    def __init__(self, protocol, stream, capsules, deliver):
        self.protocol, self.stream, self.capsules = protocol, stream, capsules
        self.deliver = deliver
        self.received = b""

    def send(self, payload):
        http, datagram = self.protocol.http, UDP_CONTEXT + payload
        if self.capsules:
            header = encode_uint_var(DATAGRAM_CAPSULE) + encode_uint_var(len(datagram))
            http.send_data(self.stream, header + datagram, end_stream=False)
        elif len(payload) <= LARGEST and len(self.protocol._quic._datagrams_pending) < MOST_WAITING:
            http.send_datagram(self.stream, datagram)
        self.protocol.transmit()

    def on_datagram(self, datagram):
        if datagram[:1] == UDP_CONTEXT:
            self.deliver(datagram[1:])

    def on_data(self, data):
        self.received += data
        while True:
            buffer = Buffer(data=self.received)
            try:
                kind, length = buffer.pull_uint_var(), buffer.pull_uint_var()
                assert length <= MAX_CAPSULE, length
                value = buffer.pull_bytes(length)
            except BufferReadError:
                return
            self.received = self.received[buffer.tell() :]
            if kind == DATAGRAM_CAPSULE:
                self.on_datagram(value)


class Masque(QuicConnectionProtocol):
    """What both ends of a connection to a proxy have."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http = Http(self._quic)
        self.tunnels = {}
        self.answers = {}

    def quic_event_received(self, event):
        if isinstance(event, StreamReset):
            self.end(event.stream_id)
        if isinstance(event, ConnectionTerminated):
            for stream in list(self.tunnels):
                self.end(stream)
        for event in self.http.handle_event(event):
            if isinstance(event, HeadersReceived):
                self.on_headers(event.stream_id, dict(event.headers))
            elif isinstance(event, DatagramReceived):
                if event.stream_id in self.tunnels:
                    self.tunnels[event.stream_id].on_datagram(event.data)
            elif isinstance(event, DataReceived):
                if event.stream_id in self.tunnels:
                    self.tunnels[event.stream_id].on_data(event.data)
                if event.stream_ended:
                    self.end(event.stream_id)

    def end(self, stream):
        self.tunnels.pop(stream, None)


class Target(asyncio.DatagramProtocol):
    """The proxy's socket to the target of a tunnel."""

    def __init__(self, tunnel):
        self.tunnel = tunnel

    def datagram_received(self, data, source):
        self.tunnel.send(data)

    def error_received(self, error):
        pass


class Proxy(Masque):
    token = None
    capsules = False

    def on_headers(self, stream, headers):
        asyncio.ensure_future(self.open(stream, headers))

    def answer(self, stream, status, end):
        headers = [(b":status", b"%d" % status), (b"capsule-protocol", b"?1")]
        self.http.send_headers(stream, headers, end_stream=end)
        self.transmit()

    async def open(self, stream, headers):
        parts = headers.get(b":path", b"").decode().strip("/").split("/")
        is_tunnel = headers.get(b":protocol") == b"connect-udp" and len(parts) == 5
        if not is_tunnel or parts[:3] != [".well-known", "masque", "udp"]:
            return self.answer(stream, 404, True)
        if headers.get(b"proxy-authorization") != b"Bearer " + self.token.encode():
            return self.answer(stream, 407, True)
        target = (unquote(parts[3]), int(parts[4]))
        tunnel = Tunnel(self, stream, self.capsules, None)
        loop = asyncio.get_running_loop()
        socket, _ = await loop.create_datagram_endpoint(lambda: Target(tunnel), remote_addr=target)
        tunnel.deliver = socket.sendto
        tunnel.socket = socket
        self.tunnels[stream] = tunnel
        self.answer(stream, 200, False)

    def end(self, stream):
        tunnel = self.tunnels.pop(stream, None)
        if tunnel is not None:
            tunnel.socket.close()


class Client(Masque):
    def on_headers(self, stream, headers):
        self.answers.pop(stream).set_result(headers[b":status"])

    async def open(self, authority, target, token, capsules, deliver):
        # Only SETTINGS say whether the proxy has extended CONNECT and datagrams.
        while self.http.received_settings is None:
            await asyncio.sleep(0.01)
        settings = self.http.received_settings
        assert settings.get(Setting.ENABLE_CONNECT_PROTOCOL) == 1, settings
        assert settings.get(Setting.H3_DATAGRAM) == 1, settings
        stream = self._quic.get_next_available_stream_id()
        host, port = target
        path = "/.well-known/masque/udp/%s/%d/" % (quote(host, safe=""), port)
        answer = self.answers[stream] = asyncio.get_running_loop().create_future()
        self.http.send_headers(
            stream,
            [
                (b":method", b"CONNECT"),
                (b":protocol", b"connect-udp"),
                (b":scheme", b"https"),
                (b":authority", authority.encode()),
                (b":path", path.encode()),
                (b"capsule-protocol", b"?1"),
                (b"proxy-authorization", b"Bearer " + token.encode()),
            ],
        )
        self.transmit()
        status = await answer
        assert status == b"200", status
        tunnel = self.tunnels[stream] = Tunnel(self, stream, capsules, deliver)
        return tunnel


class Local(asyncio.DatagramProtocol):
    """The client's local port: each program that sends to it has a tunnel of its own."""

    def __init__(self, client, args):
        self.client, self.args, self.flows = client, args, {}

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, source):
        if source not in self.flows:
            self.flows[source] = asyncio.ensure_future(self.open(source))
        flow = self.flows[source]
        if flow.done():
            flow.result().send(data)
        else:
            flow.add_done_callback(lambda flow: flow.result().send(data))

    def open(self, source):
        args = self.args
        deliver = lambda payload: self.transport.sendto(payload, source)
        target = endpoint(args.to)
        return self.client.open(args.proxy, target, args.token, args.capsules, deliver)


async def run_proxy(args):
    Proxy.token, Proxy.capsules = args.token, args.capsules
    settings = configuration(False)
    settings.load_cert_chain(args.cert, args.key)
    server = await serve(*endpoint(args.listen), configuration=settings, create_protocol=Proxy)
    print("listening on", printed(server._transport.get_extra_info("sockname")), flush=True)
    await asyncio.Future()


async def run_tunnel(args):
    settings = configuration(True)
    settings.load_verify_locations(args.cert)
    settings.verify_mode = ssl.CERT_REQUIRED
    settings.server_name = "localhost"
    connecting = connect(*endpoint(args.proxy), configuration=settings, create_protocol=Client)
    async with connecting as client:
        loop = asyncio.get_running_loop()
        local = lambda: Local(client, args)
        socket, _ = await loop.create_datagram_endpoint(local, local_addr=endpoint(args.local))
        print("listening on", printed(socket.get_extra_info("sockname")), flush=True)
        await client.wait_closed()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["proxy", "tunnel"])
    for option in ["listen", "cert", "key", "token", "proxy", "local", "to"]:
        parser.add_argument("--" + option)
    parser.add_argument("--capsules", action="store_true")
    args = parser.parse_args()
    asyncio.run(run_proxy(args) if args.command == "proxy" else run_tunnel(args))


main()
