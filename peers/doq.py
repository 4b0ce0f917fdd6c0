"""DNS over QUIC against clearway: dnspython and aioquic as clients, aioquic as server.

    doq.py upstream ADDR:PORT             a plain DNS server that answers every A query
    doq.py queries ADDR:PORT CERT COUNT   queries, each on a stream of one connection
    doq.py resume ADDR:PORT CERT          a second connection by aioquic, with 0-RTT
    doq.py serve ADDR:PORT CERT KEY       a DNS-over-QUIC server on aioquic
    doq.py plain ADDR:PORT COUNT          plain DNS queries over UDP
"""

import asyncio
import random
import socket
import ssl
import struct
import sys

import dns.asyncbackend
import dns.asyncquery
import dns.exception
import dns.message
import dns.quic
import dns.rdatatype
import dns.rrset
from aioquic.asyncio import QuicConnectionProtocol, connect, serve
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ProtocolNegotiated, StreamDataReceived

AT_ONCE = 50
SEQUENTIAL = 100


def address_of(name):
    """An address that depends on the name, so that a wrong answer is noticed."""
    return "192.0.2.%d" % (sum(name.to_wire()) % 256)


def answer(query):
    response = dns.message.make_response(query)
    name = query.question[0].name
    response.answer.append(dns.rrset.from_text(name, 60, "IN", "A", address_of(name)))
    return response


def check(query, response):
    name = query.question[0].name
    assert response.id == query.id, (response.id, query.id)
    assert response.answer[0][0].address == address_of(name), response


def endpoint(text):
    host, port = text.rsplit(":", 1)
    return host.strip("[]"), int(port)


class Upstream(asyncio.DatagramProtocol):
    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, source):
        self.transport.sendto(answer(dns.message.from_wire(data)).to_wire(), source)


async def upstream(at):
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(Upstream, local_addr=endpoint(at))
    print("listening on %s:%d" % transport.get_extra_info("sockname"), flush=True)
    await asyncio.Event().wait()


def query(n):
    made = dns.message.make_query("host-%d.example." % n, "A", use_edns=0, pad=128)
    made.id = random.randrange(1, 65536)
    return made


class Client(QuicConnectionProtocol):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.data, self.ends = {}, {}

    def quic_event_received(self, event):
        if isinstance(event, StreamDataReceived):
            self.data[event.stream_id] = self.data.get(event.stream_id, b"") + event.data
            if event.end_stream:
                self.ends.pop(event.stream_id).set_result(self.data.pop(event.stream_id))

    async def ask(self, asked):
        wire = bytearray(asked.to_wire())
        wire[:2] = b"\0\0"
        stream = self._quic.get_next_available_stream_id()
        end = self.ends[stream] = asyncio.get_running_loop().create_future()
        self._quic.send_stream_data(stream, struct.pack("!H", len(wire)) + wire, True)
        self.transmit()
        data = await asyncio.wait_for(end, 60)
        response = dns.message.from_wire(data[2:])
        assert response.id == 0 and len(data) == 2 + struct.unpack("!H", data[:2])[0]
        response.id = asked.id
        check(asked, response)
        return len(data) - 2


def trusting(cert):
    configuration = QuicConfiguration(alpn_protocols=["doq"], server_name="localhost")
    configuration.load_verify_locations(cert)
    return configuration


async def queries(at, cert, count):
    host, port = endpoint(at)
    # One after the other by dnspython, which loses wake-ups of queries at the same time.
    async with dns.quic.AsyncioQuicManager(verify_mode=cert, server_name="localhost") as manager:
        connection = manager.connect(host, port)
        for n in range(SEQUENTIAL):
            asked = query(n)
            check(asked, await dns.asyncquery.quic(
                asked, host, port=port, timeout=60, connection=connection,
                server_hostname="localhost"))
    left = iter(range(int(count) - SEQUENTIAL))
    async with connect(
        host, port, configuration=trusting(cert), create_protocol=Client,
    ) as client:

        async def ask():
            for n in left:
                await client.ask(query(n))

        await asyncio.gather(*(ask() for _ in range(AT_ONCE)))
    print("answered=%s" % count)


async def resume(at, cert):
    host, port = endpoint(at)
    tickets = []
    for attempt in range(2):
        configuration = trusting(cert)
        configuration.session_ticket = tickets[-1] if tickets else None
        async with connect(
            host, port, configuration=configuration, create_protocol=Client,
            session_ticket_handler=tickets.append, wait_connected=not attempt,
        ) as client:
            padded = await client.ask(query(attempt))
            assert padded % 468 == 0, padded
            await asyncio.sleep(0.5)
            resumed = client._quic.tls.session_resumed
            early = client._quic.tls.early_data_accepted
    assert resumed and early, (resumed, early)
    print("resumed=%s early_data=%s response=%d bytes" % (resumed, early, padded))


class Server(QuicConnectionProtocol):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.data = {}

    def quic_event_received(self, event):
        if isinstance(event, ProtocolNegotiated):
            assert event.alpn_protocol == "doq"
        if isinstance(event, StreamDataReceived):
            data = self.data.get(event.stream_id, b"") + event.data
            self.data[event.stream_id] = data
            if event.end_stream:
                asked = dns.message.from_wire(data[2:])
                assert asked.id == 0 and (len(data) - 2) % 128 == 0
                wire = answer(asked).to_wire()
                self._quic.send_stream_data(
                    event.stream_id, struct.pack("!H", len(wire)) + wire, True)
                self.transmit()


async def run_server(at, cert, key):
    host, port = endpoint(at)
    configuration = QuicConfiguration(is_client=False, alpn_protocols=["doq"])
    configuration.load_cert_chain(cert, key)
    await serve(host, port, configuration=configuration, create_protocol=Server)
    print("listening on %s" % at, flush=True)
    await asyncio.Event().wait()


async def plain(at, count):
    host, port = endpoint(at)
    left = iter(range(int(count)))

    async def ask():
        # A socket for each of these, because each new one is a tunnel for `masque.sh`.
        backend = dns.asyncbackend.get_default_backend()
        async with await backend.make_socket(socket.AF_INET, socket.SOCK_DGRAM, 0, None) as own:
            for n in left:
                # Without EDNS, so that the stub adds its padding and takes it out.
                asked = dns.message.make_query("host-%d.example." % n, "A")
                response = await answered(asked, own)
                check(asked, response)
                assert response.edns == -1

    async def answered(asked, own):
        # UDP may lose it: a resolver asks again.
        for _ in range(10):
            try:
                return await dns.asyncquery.udp(
                    asked, host, port=port, timeout=3, sock=own, ignore_unexpected=True)
            except dns.exception.Timeout:
                pass
        raise AssertionError("no answer to %s" % asked.question[0])

    await asyncio.gather(*(ask() for _ in range(AT_ONCE)))
    print("answered=%s" % count)


COMMANDS = {"upstream": upstream, "queries": queries, "resume": resume, "serve": run_server,
            "plain": plain}
assert ssl.OPENSSL_VERSION
try:
    asyncio.run(COMMANDS[sys.argv[1]](*sys.argv[2:]))
except KeyboardInterrupt:
    pass
