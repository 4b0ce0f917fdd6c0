"""aioquic as an endpoint of the public QUIC interop runner, over HTTP/0.9.

Reads the environment variables of the runner's contract, as endpoint/ does for Clearway, and exits
with 127 for a test case that it does not support.
"""

import asyncio
import os
import ssl
import sys
from urllib.parse import urlparse

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.asyncio.server import serve
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import StreamDataReceived, StreamReset
from aioquic.quic.logger import QuicFileLogger
from aioquic.quic.packet import QuicProtocolVersion
from aioquic.tls import CipherSuite

UNSUPPORTED = 127
ALPN = "hq-interop"
# How long to wait for a session ticket.
TICKET_TIMEOUT = 5.0
ONE, TWO = QuicProtocolVersion.VERSION_1, QuicProtocolVersion.VERSION_2

CASES = {
    "handshake",
    "transfer",
    "longrtt",
    "chacha20",
    "multiplexing",
    "retry",
    "resumption",
    "zerortt",
    "keyupdate",
    "multiconnect",
    "ipv6",
    "v2",
}


def variable(name, default=None):
    return os.environ.get(name) or default


def configure(is_client, case):
    configuration = QuicConfiguration(is_client=is_client, alpn_protocols=[ALPN])
    # The order of preference; the first flight has version 1.
    configuration.supported_versions = [TWO, ONE] if case == "v2" else [ONE, TWO]
    if is_client:
        configuration.original_version = ONE
        configuration.verify_mode = ssl.CERT_NONE
    if case == "chacha20":
        configuration.cipher_suites = [CipherSuite.CHACHA20_POLY1305_SHA256]
    configuration.max_data = configuration.max_stream_data = 1 << 24
    if directory := variable("QLOGDIR"):
        configuration.quic_logger = QuicFileLogger(directory)
    if file := variable("SSLKEYLOGFILE"):
        configuration.secrets_log_file = open(file, "a", encoding="ascii")
    return configuration


class Server(QuicConnectionProtocol):
    """Answers `GET /path` with the file."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.requests = {}

    def quic_event_received(self, event):
        if not isinstance(event, StreamDataReceived):
            return
        request = self.requests.get(event.stream_id, b"") + event.data
        self.requests[event.stream_id] = request
        if not event.end_stream:
            return
        name = os.path.basename(request.decode("ascii", "replace").strip())
        try:
            with open(os.path.join(variable("WWW", "/www"), name), "rb") as file:
                self._quic.send_stream_data(event.stream_id, file.read(), end_stream=True)
        except OSError:
            self._quic.reset_stream(event.stream_id, 1)
        self.transmit()


class Client(QuicConnectionProtocol):
    """Downloads files, each on a stream."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.downloads = {}

    async def get(self, url):
        parsed = urlparse(url)
        stream = self._quic.get_next_available_stream_id()
        done = asyncio.get_running_loop().create_future()
        self.downloads[stream] = [bytearray(), done]
        self._quic.send_stream_data(
            stream, f"GET {parsed.path}\r\n".encode("ascii"), end_stream=True
        )
        self.transmit()
        content = await done
        name = os.path.basename(parsed.path)
        with open(os.path.join(variable("DOWNLOADS", "/downloads"), name), "wb") as file:
            file.write(content)

    def quic_event_received(self, event):
        if isinstance(event, (StreamDataReceived, StreamReset)):
            content, done = self.downloads[event.stream_id]
            if isinstance(event, StreamReset):
                done.set_exception(RuntimeError("the server reset the stream"))
            else:
                content += event.data
                if event.end_stream:
                    done.set_result(bytes(content))

    def connection_lost(self, exc):
        super().connection_lost(exc)
        for _, done in self.downloads.values():
            if not done.done():
                done.set_exception(RuntimeError("the connection ended"))


async def download(urls, configuration, tickets, early=False, update_keys=False):
    """Downloads `urls` on one connection, and waits for a ticket if `tickets` is a list."""
    server = urlparse(urls[0])
    keep = None if tickets is None else tickets.append
    async with connect(
        server.hostname,
        server.port or 443,
        configuration=configuration,
        create_protocol=Client,
        session_ticket_handler=keep,
        wait_connected=not early,
    ) as client:
        if update_keys:
            client.request_key_update()
        await asyncio.gather(*[client.get(url) for url in urls])
        waited = 0.0
        while tickets == [] and waited < TICKET_TIMEOUT:
            await asyncio.sleep(0.01)
            waited += 0.01


async def run_client(case):
    urls = (variable("REQUESTS") or "").split()
    if not urls:
        raise SystemExit("REQUESTS is empty")
    if case == "multiconnect":
        for url in urls:
            await download([url], configure(True, case), None)
    elif case in ("resumption", "zerortt"):
        tickets = []
        await download(urls[:1], configure(True, case), tickets)
        if not tickets:
            raise SystemExit("the server sent no session ticket")
        configuration = configure(True, case)
        configuration.session_ticket = tickets[0]
        await download(urls[1:], configuration, None, early=case == "zerortt")
    else:
        await download(urls, configure(True, case), None, update_keys=case == "keyupdate")


async def run_server(case):
    configuration = configure(False, case)
    certs = variable("CERTS", "/certs")
    configuration.load_cert_chain(
        os.path.join(certs, "cert.pem"), os.path.join(certs, "priv.key")
    )
    tickets = {}
    await serve(
        "::",
        int(variable("PORT", "443")),
        configuration=configuration,
        create_protocol=Server,
        session_ticket_fetcher=lambda ticket: tickets.pop(ticket, None),
        session_ticket_handler=lambda ticket: tickets.update({ticket.ticket: ticket}),
        retry=case == "retry",
    )
    await asyncio.Future()


def main():
    case, role = variable("TESTCASE"), variable("ROLE")
    if case not in CASES:
        return UNSUPPORTED
    if role not in ("client", "server"):
        raise SystemExit(f"ROLE is {role!r}: expected client or server")
    asyncio.run(run_client(case) if role == "client" else run_server(case))
    return 0


if __name__ == "__main__":
    sys.exit(main())
